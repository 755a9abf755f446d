"""What the tests of TLS share."""
from harness import wait_until


def settings(port, ca, host="127.0.0.1", own=None, more=""):
    """Of the group `store`; ca None: what the system trusts."""
    trusted = f'tls_ca = "{ca.path}";' if ca else ""
    client = f'tls_certificate_file = "{own.path}"; tls_key_file = "{own.key}";' if own else ""
    return f'server = "rediss://{host}:{port}"; {trusted} {client} {more}'


def reasons(host):
    """The lines of the log that say why the store is away: one whenever the reason is another one. (After a while an event says
    that it is away for long.)"""
    return [line for line in host.log().splitlines()
            if (" is not reachable: " in line or " cannot be used: " in line) and "leases run out if this lasts" not in line]


def refused(host, why):
    """It stands in log, status and doctor. Returns what doctor says."""
    wait_until(lambda: why in host.status()["store"]["error"], f"status says: {why}")
    assert not host.status()["store"]["up"]
    assert any(why in line for line in reasons(host)), host.log()
    doctor = host.cli("doctor", check=False).stdout
    assert why in doctor, doctor
    return doctor
