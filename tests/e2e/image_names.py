#!/usr/bin/env python3
"""How hanse-run finds the hub that it calls: names by the image's /etc/hosts and /etc/resolv.conf, TLS by the CA that it was given. A
static program of the same parts (tests/tools/static/dial.c) dials from within an empty image, in a network of its own with a name server
of ours. Exit 1 when any check failed."""
import fcntl
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
if not os.environ.get("HANSE_RUN"):
    print("SKIPPED: hanse-run was not built (HANSE_STATIC_RUNNER)")
    sys.exit(77)
import image as images  # noqa: E402

DIAL = os.path.join(os.environ["HANSE_BUILD_DIR"], "tests/tools/static/dial")
CHROOT = shutil.which("chroot", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
NAME = "hub.example"
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
# With this configuration OpenSSL has no TLS: who reads it cannot dial.
OPENSSL_CNF = "openssl_conf = init\n[init]\nproviders = p\n[p]\nbase = b\n[b]\nactivate = 1\n"
failed = 0


def check(good, what):
    global failed
    failed += not good
    print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)


def name_server(asked):
    """Knows NAME as 127.0.0.1, and nothing else; hears all that is asked."""
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.53", 53))
    while True:
        query, who = s.recvfrom(512)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        question = query[12:at + 5]
        kind = struct.unpack(">H", query[at + 1:at + 3])[0]
        known = ".".join(labels) == NAME
        asked.append(".".join(labels))
        answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton("127.0.0.1") if known and kind == 1 else b""
        flags = 0x8180 if known else 0x8183
        s.sendto(query[:2] + struct.pack(">HHHHH", flags, 1, bool(answer), 0, 0) + question + answer, who)


def tls_server(folder, port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/hub.pem", f"{folder}/hub.key")
    context.set_alpn_protocols(["http/1.1"])
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        s, _ = listener.accept()
        try:
            with context.wrap_socket(s, server_side=True) as t:
                t.recv(1)
        except (ssl.SSLError, OSError):
            pass


def openssl(*argv):
    subprocess.run(["openssl", *argv], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def certificates(folder):
    for ca in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={ca}",
                "-keyout", f"{folder}/{ca}.key", "-out", f"{folder}/{ca}.pem")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=member:1", "-keyout", f"{folder}/hub.key",
            "-out", f"{folder}/hub.csr")
    with open(f"{folder}/ext", "w", encoding="ascii") as f:
        f.write(f"subjectAltName=DNS:{NAME},DNS:listed.example,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", f"{folder}/hub.csr", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", f"{folder}/ext", "-out", f"{folder}/hub.pem")


def inside(folder):
    """In the network of its own: nobody else is on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    subprocess.run(["mount", "--bind", "/dev/null", f"{folder}/root/dev/null"], check=True)
    asked, port = [], 7443
    threading.Thread(target=name_server, args=(asked,), daemon=True).start()
    threading.Thread(target=tls_server, args=(folder, port), daemon=True).start()
    root = f"{folder}/root"

    def etc(name, text):
        with open(f"{root}/etc/{name}", "w", encoding="ascii") as f:
            f.write(text)

    def dial(host, ca="ca"):
        began = time.monotonic()
        done = subprocess.run([CHROOT, root, "/dial", f"{host}:{port}", f"/store/{ca}.pem"], stdout=subprocess.PIPE, text=True, check=False,
                              env={"SSL_CERT_FILE": "/store/ca.pem", "OPENSSL_CONF": "/etc/openssl.cnf"})
        return done.returncode, f"{done.stdout.strip()} ({time.monotonic() - began:.1f} s)"

    etc("openssl.cnf", OPENSSL_CNF)
    code, said = dial("127.0.0.1")
    check(code == 0 and not asked, f"an address needs no name server, and the image's openssl.cnf is not read: {said}")
    etc("resolv.conf", "nameserver 127.0.0.53\n")
    code, said = dial(NAME)
    check(code == 0 and NAME in asked, f"by the name server of resolv.conf: {said}")
    etc("hosts", "127.0.0.1 listed.example\n")
    code, said = dial("listed.example")
    check(code == 0 and "listed.example" not in asked, f"by /etc/hosts: {said}")
    code, said = dial("nobody.example")
    check(code == 1 and "knows it" in said and "nobody.example" in asked, f"a name that nobody knows: {said}")
    code, said = dial(NAME, "other")
    check(code == 1 and "certificate" in said, f"whom another CA signed is not trusted, whatever the image trusts: {said}")
    etc("resolv.conf", "nameserver 127.0.0.54\n")
    code, said = dial(NAME)
    check(code == 1 and "no name server answers" in said, f"no name server there: {said}")
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.55", 53))
    etc("resolv.conf", "nameserver 127.0.0.55\n")
    began = time.monotonic()
    code, said = dial(NAME)
    check(code == 1 and "no name server answers" in said and time.monotonic() - began < 20, f"a name server that is silent: {said}")
    return 1 if failed else 0


def main():
    if len(sys.argv) > 1:
        return inside(sys.argv[1])
    if not shutil.which("openssl"):
        images.skip("openssl is not installed")
    network = images.namespaces("-n")
    folder = tempfile.mkdtemp(prefix="hanse-names-")
    try:
        image = images.Image(os.path.join(folder, "root"))
        shutil.copy(DIAL, image.path("dial"))
        certificates(folder)
        for ca in ("ca", "other"):
            shutil.copy(f"{folder}/{ca}.pem", image.path("store"))
        return subprocess.run([*network, sys.executable, os.path.abspath(__file__), folder], check=False).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
