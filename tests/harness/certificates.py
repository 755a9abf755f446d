"""Certificates in a folder of the test, made by openssl(1); a redis-server and sentinels that speak TLS with them."""
import os
import subprocess


def _openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Authority:
    def __init__(self, folder, name="ca"):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.name = folder, name
        self.key, self.path = self._paths(name)
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out", self.path,
                 "-subj", f"/CN=Authority {name}", "-days", "2")

    def _paths(self, name):
        return os.path.join(self.folder, name + ".key"), os.path.join(self.folder, name + ".pem")

    def issue(self, name, names="IP:127.0.0.1,DNS:localhost", days=2):
        """days=-1: it has expired. Replaces a certificate of this name in one step each."""
        key, path = self._paths(name)
        request, extensions = path + ".csr", path + ".ext"
        with open(extensions, "w") as f:
            f.write(f"subjectAltName={names}\n")
        _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key + ".new", "-out", request,
                 "-subj", f"/CN={name}")
        os.chmod(key + ".new", 0o600)
        _openssl("x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self.key, "-CAcreateserial", "-days", str(days),
                 "-extfile", extensions, "-out", path + ".new")
        os.rename(key + ".new", key)
        os.rename(path + ".new", path)
        return Certificate(key, path)

    def server_options(self, certificate, port, clients=False, sentinel=False):
        """What redis-server needs to speak TLS on this port, and no other TCP."""
        options = {"port": 0, "tls-port": port, "tls-cert-file": certificate.path, "tls-key-file": certificate.key,
                   "tls-ca-cert-file": self.path, "tls-auth-clients": "yes" if clients else "no", "tls-replication": "yes"}
        return [f"{k} {v}" for k, v in options.items()] if sentinel else [w for k, v in options.items() for w in ("--" + k, str(v))]


class Certificate:
    def __init__(self, key, path):
        self.key, self.path = key, path
