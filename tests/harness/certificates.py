"""Certificates in a folder of the test, made by openssl(1); a redis-server and sentinels that speak TLS with them."""
import datetime
import os
import subprocess

# `openssl x509` of OpenSSL 3.0 takes no dates, and that of 3.5 makes no certificate that has expired.
SETTINGS = """
[ca]
default_ca = this
[this]
database = {folder}/{name}.index
new_certs_dir = {folder}
unique_subject = no
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def _openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Authority:
    def __init__(self, folder, name="ca"):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.name = folder, name
        self.key, self.path = self._paths(name)
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out", self.path,
                 "-subj", f"/CN=Authority {name}", "-days", "2")
        self.settings = os.path.join(folder, name + ".cnf")
        with open(self.settings, "w") as f, open(os.path.join(folder, name + ".index"), "w"):
            f.write(SETTINGS.format(folder=folder, name=name))

    def _paths(self, name):
        return os.path.join(self.folder, name + ".key"), os.path.join(self.folder, name + ".pem")

    def issue(self, name, names="IP:127.0.0.1,DNS:localhost", days=2):
        """days: until then it is valid; -1: it has expired. Replaces a certificate of this name in one step each."""
        key, path = self._paths(name)
        request, extensions = path + ".csr", path + ".ext"
        with open(extensions, "w") as f:
            f.write(f"subjectAltName={names}\n")
        _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key + ".new", "-out", request,
                 "-subj", f"/CN={name}")
        os.chmod(key + ".new", 0o600)
        now = datetime.datetime.now(datetime.timezone.utc)
        dates = [f"{now + datetime.timedelta(days=n):%Y%m%d%H%M%SZ}" for n in (min(days, 1) - 1, days)]
        _openssl("ca", "-batch", "-config", self.settings, "-in", request, "-cert", self.path, "-keyfile", self.key, "-startdate", dates[0],
                 "-enddate", dates[1], "-extfile", extensions, "-notext", "-out", path + ".new")
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
