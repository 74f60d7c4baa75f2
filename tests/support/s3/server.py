#!/usr/bin/env python3
"""A small S3 for tests: objects in memory, path style, one bucket; it checks every signature (Signature Version 4), every payload
hash and every checksum on its own, and can be told to fail. No product: what S3 does beyond that, tests/peers asks moto.

    server.py [BUCKET]     prints "port N", then obeys lines on its standard input, each answered by lines and a last "ok":
      fault TIMES METHOD TEXT KIND   the next TIMES requests of METHOD (or *) whose path and query contain TEXT (or *) fail:
                                     503 (SlowDown, Retry-After: 1), html500, html200, 403, lost (done, no answer), short (half a
                                     body), wrong (a byte of the body is another), truncate (half of what came is kept), cut (the connection, after half of
                                     the body has come), expired (the token), echo (of the secret), 503-date
                                     (Retry-After as a date), hang,
                                     412 (whatever is there), 501 (to If-None-Match, and to copies), inside (of the answer to
                                     a copy), skew
      bend KEY remove|cut|byte       as somebody else might
      keys [PREFIX], requests        what is there; how many requests came since it was asked last, and which
      uploads                        multipart uploads that are neither completed nor aborted
      page N                         keys of one page of a listing
      away, back                     nobody listens at the port; and again
The keys are id "tester", secret "a secret/with+odd=characters"; any session token is "token"."""
import base64
import hashlib
import hmac
import http.server
import re
import socketserver
import ssl
import sys
import threading
import time
import urllib.parse
from email.utils import formatdate
from xml.sax.saxutils import escape

ID, SECRET, TOKEN = "tester", "a secret/with+odd=characters", "token"
HTML = b"<html><head><title>500</title></head><body><h1>Oops</h1><Contents><Key>no</Key></Contents></body></html>"


def sha(data):
    return hashlib.sha256(data).digest()


class Refused(Exception):
    def __init__(self, status, code, message=""):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


class Store:
    def __init__(self, bucket):
        self.bucket, self.objects, self.uploads, self.faults, self.log = bucket, {}, {}, [], []
        self.page, self.lock, self.number = 1000, threading.RLock(), 0

    def fault(self, method, target):
        with self.lock:
            for f in self.faults:
                if f[0] > 0 and f[1] in ("*", method) and (f[2] == "*" or f[2] in target):
                    f[0] -= 1
                    return f[3]
        return ""

    def put(self, key, data, checksum):
        with self.lock:
            self.objects[key] = (data, time.time(), checksum)
        return '"%s"' % hashlib.md5(data).hexdigest()


def signature(method, path, query, headers, signed, payload, scope, date):
    pairs = sorted((urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~"))
                   for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join([method, urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~"), "&".join(f"{k}={v}" for k, v in pairs),
                           *(f"{h}:{' '.join(headers.get(h, '').split())}" for h in signed), "", ";".join(signed), payload])
    text = "\n".join(["AWS4-HMAC-SHA256", date, "/".join(scope), sha(canonical.encode()).hex()])
    key = ("AWS4" + SECRET).encode()
    for part in (*scope, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, timeout = "HTTP/1.1", 60
    store, skew = None, 0

    def log_message(self, *_):
        pass

    # ---- who asks ---------------------------------------------------------------------------------------

    def check(self, path, query, body):
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?"
                             r"Signature=([0-9a-f]{64})", self.headers.get("authorization", ""))
        if not found:
            raise Refused(403, "AccessDenied", "no signature")
        who, day, region, signed, said = found.groups()
        date, payload, signed = self.headers.get("x-amz-date", ""), self.headers.get("x-amz-content-sha256", ""), signed.split(";")
        if who != ID:
            raise Refused(403, "InvalidAccessKeyId")
        if not date.startswith(day) or abs(time.mktime(time.strptime(date, "%Y%m%dT%H%M%SZ")) - time.timezone - self.now()) > 900:
            raise Refused(403, "RequestTimeTooSkewed")
        if "x-amz-security-token" in self.headers and self.headers["x-amz-security-token"] != TOKEN:
            raise Refused(400, "InvalidToken")
        if signed != sorted(signed) or "host" not in signed or any(
                h.lower().startswith("x-amz-") and h.lower() not in signed for h in self.headers.keys()):
            raise Refused(403, "AccessDenied", "a header is not signed")
        lower = {k.lower(): v for k, v in self.headers.items()}
        if signature(self.command, path, query, lower, signed, payload, [day, region, "s3", "aws4_request"], date) != said:
            raise Refused(403, "SignatureDoesNotMatch")
        if payload != sha(body).hex():
            raise Refused(400, "XAmzContentSHA256Mismatch")
        checksum = self.headers.get("x-amz-checksum-sha256")
        if checksum and checksum != base64.b64encode(sha(body)).decode():
            raise Refused(400, "BadDigest")

    def now(self):
        return time.time() + self.skew

    # ---- answers ----------------------------------------------------------------------------------------

    def answer(self, status, body=b"", kind="application/xml", fault="", **headers):
        if fault == "lost":
            self.close_connection = True
            return
        length = len(body)
        if fault == "wrong" and body:
            body = body[:length // 2] + bytes([body[length // 2] ^ 1]) + body[length // 2 + 1:]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204 and "Content-Length" not in {h.replace("_", "-") for h in headers}:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if fault == "short":
            body, self.close_connection = body[:length // 2], True
        if self.command != "HEAD":
            self.wfile.write(body)

    def date_time_string(self, timestamp=None):
        return formatdate(timestamp if timestamp is not None else self.now(), usegmt=True)

    def refuse(self, e):
        headers = {"Retry_After": "1"} if e.status == 503 else {}
        self.answer(e.status, f"<?xml version='1.0'?>\n<Error><Code>{e.code}</Code><Message>{escape(e.message)}</Message></Error>".encode(),
                    **headers)

    def handle_any(self):
        path, _, query = self.path.partition("?")
        fault, bytes_all = self.store.fault(self.command, urllib.parse.unquote(self.path)), int(self.headers.get("content-length") or 0)
        body = self.rfile.read(bytes_all // 2 if fault == "cut" else bytes_all)
        with self.store.lock:
            copies = " copied" if "x-amz-copy-source" in self.headers else ""
            self.store.log.append(f"{self.command} {urllib.parse.unquote(self.path)} {self.headers.get('range', '')} {fault}".strip() + copies)
        try:
            if fault == "cut":
                self.close_connection = True
                return self.connection.shutdown(2)
            if fault == "503-date":
                return self.answer(503, b"", Retry_After=formatdate(int(self.now()) + 2, usegmt=True))
            if fault == "echo":
                raise Refused(403, "AccessDenied", "your secret is " + SECRET)
            if fault == "expired":
                raise Refused(400, "ExpiredToken", "the provided token has expired")
            if fault == "hang":
                time.sleep(30)
            if fault == "skew":
                type(self).skew = 3600
            if fault.startswith("html"):
                return self.answer(int(fault[4:]), HTML, "text/html")
            if fault in ("503", "403"):
                raise Refused(int(fault), "SlowDown" if fault == "503" else "AccessDenied", "please reduce your request rate")
            self.check(path, query, body)
            bucket, _, key = urllib.parse.unquote(path)[1:].partition("/")
            if bucket != self.store.bucket:
                raise Refused(404, "NoSuchBucket")
            asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
            getattr(self, "s3_" + self.command.lower())(key, asked, body, fault)
        except Refused as e:
            self.refuse(e)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    # ---- what is asked ----------------------------------------------------------------------------------

    def object(self, key):
        with self.store.lock:
            if key not in self.store.objects:
                raise Refused(404, "NoSuchKey")
            return self.store.objects[key]

    def s3_get(self, key, asked, _body, fault):
        if not key:
            return self.s3_list(asked, fault)
        data, at, _ = self.object(key)
        headers = {"ETag": '"%s"' % hashlib.md5(data).hexdigest(), "Last_Modified": formatdate(at, usegmt=True)}
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if not span:
            return self.answer(200, data, "binary/octet-stream", fault, **headers)
        first, last = int(span[1]), min(int(span[2]), len(data) - 1)
        if first >= len(data):
            raise Refused(416, "InvalidRange")
        self.answer(206, data[first:last + 1], "binary/octet-stream", fault, Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)

    def s3_head(self, key, _asked, _body, fault):
        try:
            data, at, checksum = self.object(key)
        except Refused:
            return self.answer(404, b"", fault=fault)
        headers = {"x_amz_checksum_sha256": checksum} if checksum else {}
        self.answer(200, b"", "binary/octet-stream", fault, Content_Length=str(len(data)), Last_Modified=formatdate(at, usegmt=True), **headers)

    def s3_list(self, asked, fault):
        prefix, delimiter, after = asked.get("prefix", ""), asked.get("delimiter", ""), asked.get("continuation-token", "")
        with self.store.lock:
            keys, found, folders = sorted(k for k in self.store.objects if k.startswith(prefix)), [], []
            whole, last = True, ""
            for k in keys:
                cut = k.find(delimiter, len(prefix)) if delimiter else -1
                name = k[:cut + 1] if cut >= 0 else k
                if after and name <= after or name in folders:
                    continue
                if len(found) + len(folders) == self.store.page:
                    whole = False
                    break
                last = name
                (folders if cut >= 0 else found).append(name)
            stamp = {k: time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.store.objects[k][1])) for k in found}
        text = "".join(f"<Contents><Key>{escape(k)}</Key><LastModified>{stamp[k]}</LastModified></Contents>" for k in found)
        text += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
        text += "" if whole else f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        self.answer(200, (f"<?xml version='1.0' encoding='UTF-8'?>\n<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                          f"<Name>{self.store.bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
                          f"<IsTruncated>{'false' if whole else 'true'}</IsTruncated>{text}</ListBucketResult>").encode(), fault=fault)

    def s3_put(self, key, asked, body, fault):
        if fault == "truncate":
            body = body[:len(body) // 2]
        with self.store.lock:
            if "partNumber" in asked:
                upload = self.store.uploads.get(asked.get("uploadId"))
                if not upload or upload[0] != key:
                    raise Refused(404, "NoSuchUpload")
                upload[1][int(asked["partNumber"])] = body
                return self.answer(200, b"", fault=fault, ETag='"%s"' % hashlib.md5(body).hexdigest())
            if "x-amz-copy-source" in self.headers:
                return self.s3_copy(key, fault)
            if "if-none-match" in self.headers:
                if fault == "501":
                    raise Refused(501, "NotImplemented")
                if key in self.store.objects or fault == "412":
                    raise Refused(412, "PreconditionFailed")
            checksum = self.headers.get("x-amz-checksum-sha256", "") if fault != "truncate" else base64.b64encode(sha(body)).decode()
            etag = self.store.put(key, body, checksum)
        self.answer(200, b"", fault=fault, ETag=etag)

    def s3_copy(self, key, fault):
        bucket, _, source = urllib.parse.unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")
        if bucket != self.store.bucket:
            raise Refused(403, "AccessDenied")
        if fault == "501":
            raise Refused(501, "NotImplemented")
        data = self.object(source)[0]
        if fault == "truncate":
            data = data[:len(data) // 2]
        if fault == "inside":  # as S3 does when it fails after it has begun to answer
            return self.answer(200, b"<Error><Code>InternalError</Code></Error>")
        checksum = base64.b64encode(sha(data)).decode() if self.headers.get("x-amz-checksum-algorithm") == "SHA256" else ""
        etag = self.store.put(key, data, checksum)
        self.answer(200, f"<CopyObjectResult><ETag>{escape(etag)}</ETag></CopyObjectResult>".encode(), fault=fault)

    def s3_post(self, key, asked, body, fault):
        with self.store.lock:
            if "uploads" in asked:
                self.store.number += 1
                upload = f"up/{self.store.number}+load&="
                self.store.uploads[upload] = (key, {})
                return self.answer(200, f"<InitiateMultipartUploadResult><Bucket>b</Bucket><UploadId>{escape(upload)}</UploadId>"
                                        f"</InitiateMultipartUploadResult>".encode(), fault=fault)
            upload = self.store.uploads.pop(asked.get("uploadId"), None)
            if not upload or upload[0] != key:
                raise Refused(404, "NoSuchUpload")
            parts = [(int(n), e) for e, n in re.findall(rb"<ETag>([^<]*)</ETag><PartNumber>(\d+)</PartNumber>", body)]
            if [n for n, _ in parts] != sorted(upload[1]) or any(
                    e.decode() != '"%s"' % hashlib.md5(upload[1][n]).hexdigest() for n, e in parts):
                return self.answer(200, b"<Error><Code>InvalidPart</Code></Error>")
            data = b"".join(upload[1][n] for n, _ in parts)
            whole = base64.b64encode(sha(b"".join(sha(upload[1][n]) for n, _ in parts))).decode()
            etag = self.store.put(key, data, f"{whole}-{len(parts)}")
        self.answer(200, f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>".encode(), fault=fault)

    def s3_delete(self, key, asked, _body, fault):
        with self.store.lock:
            if "uploadId" in asked:
                self.store.uploads.pop(asked["uploadId"], None)
            else:
                self.store.objects.pop(key, None)
        self.answer(204, fault=fault)


class Listener(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self, *a):
        super().__init__(*a)
        self.open = set()

    def process_request(self, request, address):
        self.open.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request):
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        pass


class Server:
    """For tests in Python: the same by method."""

    def __init__(self, bucket="bucket", certificate=None):
        """certificate: of a file with certificate and key; then it speaks TLS."""
        self.store, self.tls = Store(bucket), None
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        self.handler = type("Bound", (Handler,), {"store": self.store})
        self.port, self.listener = 0, None
        self.back()

    def back(self):
        self.listener = Listener(("127.0.0.1", self.port), self.handler)
        self.port = self.listener.server_address[1]
        if self.tls:
            self.listener.socket = self.tls.wrap_socket(self.listener.socket, server_side=True)
        threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True).start()

    def away(self):
        self.listener.shutdown()
        self.listener.server_close()
        for connection in list(self.listener.open):
            try:
                connection.shutdown(2)
            except OSError:
                pass

    def fault(self, times, method, text, kind):
        with self.store.lock:
            self.store.faults.append([int(times), method, text, kind])

    def bend(self, key, how):
        """KEY, or @ and how a key ends."""
        with self.store.lock:
            if key.startswith("@"):
                (key,) = [k for k in self.store.objects if k.endswith(key[1:])]
            data, at, checksum = self.store.objects[key]
            if how == "remove":
                del self.store.objects[key]
            else:
                middle = len(data) // 2
                self.store.objects[key] = (data[:middle] if how == "cut" else
                                           data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:], at, checksum)

    def keys(self, prefix=""):
        with self.store.lock:
            return sorted(k for k in self.store.objects if k.startswith(prefix))

    def environment(self):
        return {"AWS_ENDPOINT_URL_S3": f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}", "AWS_REGION": "eu-test-1", "AWS_ACCESS_KEY_ID": ID,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}


def obey(server, words):
    if words[0] == "keys":
        return server.keys(*words[1:])
    if words[0] == "requests":
        with server.store.lock:
            said, server.store.log = server.store.log, []
        return said
    if words[0] == "uploads":
        return sorted(server.store.uploads)
    if words[0] == "page":
        server.store.page = int(words[1])
    elif words[0] == "faults":
        server.store.faults = []
    else:
        getattr(server, words[0])(*words[1:])
    return []


def main():
    server = Server(*sys.argv[1:2])
    print("port", server.port, flush=True)
    for line in sys.stdin:
        for said in obey(server, line.split()):
            print(said)
        print("ok", flush=True)


if __name__ == "__main__":
    main()
