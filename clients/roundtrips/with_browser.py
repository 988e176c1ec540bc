"""A page in a real browser: uploads by a form and by fetch, from an origin that the bucket has to allow."""

import base64
import datetime
import hashlib
import json
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from playwright.sync_api import sync_playwright

import bare
import suite
import tasks
from commands import file_of
from harness.sigv4 import Signer

ENDPOINT = os.environ["MARTLET_ENDPOINT"]
WAIT_MS = 60_000
PAGE = b"<!doctype html><meta charset=utf-8><title>A page</title><p>Here."


class Origin(BaseHTTPRequestHandler):
    """The site that the page comes from, and where a form is sent back to."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        """The site keeps no log."""


def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://localhost:{server.server_port}"


SITE = site()
OTHER_SITE = site()


def cors(*rules):
    body = "<CORSConfiguration>" + "".join(f"<CORSRule>{rule}</CORSRule>" for rule in rules) + "</CORSConfiguration>"
    digest = base64.b64encode(hashlib.md5(body.encode()).digest()).decode()
    bare.ask("PUT", query="cors=", data=body.encode(), headers={"content-md5": digest})


def presigned(method, key, **headers):
    return ENDPOINT + Signer().presign(method, f"/{bare.BUCKET}/{key}", os.environ["MARTLET_HOST"], headers=headers)


def fields_of(key_prefix, redirect):
    """What a site puts into its form: a policy, signed."""
    signer = Signer()
    expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=5)
    credential = f"{signer.access}/{signer.scope}"
    signed = {"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": credential, "x-amz-date": signer.date}
    conditions = [{"bucket": bare.BUCKET}, ["starts-with", "$key", key_prefix], ["starts-with", "$Content-Type", ""],
                  {"success_action_redirect": redirect}, ["content-length-range", 0, 20 * suite.MIB],
                  *({name: value} for name, value in signed.items())]
    document = {"expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": conditions}
    policy = base64.b64encode(json.dumps(document).encode()).decode()
    return {"key": key_prefix + "${filename}", "success_action_redirect": redirect, "Content-Type": "image/png",
            **signed, "policy": policy, "x-amz-signature": signer.mac(policy)}


def form(fields):
    inputs = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields.items())
    return (f'<form method="post" action="{ENDPOINT}/{bare.BUCKET}" enctype="multipart/form-data">{inputs}'
            '<input type="file" name="file"><button>Send</button></form>')


def open_page(where=SITE):
    page = BROWSER.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(where)
    return page


def fetched(page, url, method, **how):
    """What a page's script gets: the status, what it may see of the headers, and the text; or that it gets nothing."""
    return page.evaluate("""async ([url, method, how]) => {
        const body = how.size === undefined ? how.body
            : new Blob([Uint8Array.from({ length: how.size }, (_, at) => (at * 31) % 251)]);
        try {
            const reply = await fetch(url, { method, headers: how.headers ?? {}, body });
            return { status: reply.status, etag: reply.headers.get("etag"), id: reply.headers.get("x-amz-request-id"),
                     text: await reply.text() };
        } catch (error) {
            return { error: String(error) };
        }
    }""", [url, method, how])


def a_form(rng):
    page, data = open_page(), rng.randbytes(5 * suite.MIB + 1)
    page.set_content(form(fields_of("from-a-form/", SITE + "/thanks")))
    page.set_input_files("input[type=file]", file_of(data))
    name = os.path.basename(page.evaluate("document.querySelector('input[type=file]').files[0].name"))
    page.click("button")
    page.wait_for_url(SITE + "/thanks?*")
    # The site is told where it went.
    assert f"bucket={bare.BUCKET}&key=from-a-form%2F{name}&etag=" in page.url, page.url
    suite.same(bare.get(f"from-a-form/{name}"), data, "what the form sent")
    suite.same(bare.ask("HEAD", f"from-a-form/{name}")[0]["Content-Type"], "image/png", "its type")
    page.close()


def a_form_against_its_policy(_):
    page = open_page()
    page.set_content(form({**fields_of("from-a-form/", SITE + "/thanks"), "key": "elsewhere/${filename}"}))
    page.set_input_files("input[type=file]", file_of(b"x"))
    with page.expect_navigation() as navigation:
        page.click("button")
    suite.same(navigation.value.status, 403, "the status of a form against its policy")
    assert "AccessDenied" in navigation.value.text()
    suite.same(bare.keys("elsewhere/"), [], "what it left")
    page.close()


def nothing_without_rules(_):
    page = open_page()
    put = fetched(page, presigned("PUT", "put/0"), "PUT", body="x")
    assert "Failed to fetch" in put["error"], put
    suite.same(bare.keys("put/"), [], "what came through without rules")
    page.close()


def fetch_after_a_preflight(_):
    cors(f"<AllowedOrigin>{SITE}</AllowedOrigin><AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod>"
         "<AllowedMethod>DELETE</AllowedMethod><AllowedMethod>POST</AllowedMethod>"
         "<AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>1</MaxAgeSeconds>")
    page, size = open_page(), 12 * suite.MIB + 3
    told = {"content-type": "text/x-odd", "x-amz-meta-colour": "blue"}
    put = fetched(page, presigned("PUT", "put/1", **told), "PUT", size=size, headers=told)
    data = bytes(at * 31 % 251 for at in range(size))
    suite.same(bare.get("put/1"), data, "what fetch put")
    headers = bare.ask("HEAD", "put/1")[0]
    suite.same((headers["Content-Type"], headers["x-amz-meta-colour"]), ("text/x-odd", "blue"), "what it told of it")
    # Of the headers it sees those that the rule exposes.
    suite.same((put["status"], put["etag"], put["id"]), (200, headers["ETag"], None), "what the script saw")
    got = fetched(page, presigned("GET", "put/1"), "GET", headers={"range": "bytes=31-40"})
    suite.same((got["status"], len(got["text"]) > 0), (206, True), "a range")
    suite.same(fetched(page, presigned("DELETE", "put/1"), "DELETE")["status"], 204, "a removal")
    suite.same(bare.keys("put/"), [], "what is left")
    page.close()


def errors_are_seen(_):
    page = open_page()
    found = fetched(page, presigned("GET", "none"), "GET")
    assert found["status"] == 404 and "<Code>NoSuchKey</Code>" in found["text"], found
    forged = fetched(page, presigned("PUT", "put/2")[:-4] + "0000", "PUT", body="x")
    assert forged["status"] == 403 and "SignatureDoesNotMatch" in forged["text"], forged
    page.close()


def another_site_may_not(_):
    page = open_page(OTHER_SITE)
    put = fetched(page, presigned("PUT", "put/3"), "PUT", body="x")
    assert "Failed to fetch" in put["error"], put
    suite.same(bare.keys("put/"), [], "what another site put")
    page.close()


def parts_from_a_script(rng):
    """An upload in parts, each of which the site's server presigned."""
    page, sizes = open_page(), [5 * suite.MIB, 5 * suite.MIB, rng.randrange(1, suite.MIB)]
    begun = bare.ask("POST", "parts", query="uploads=")[1].decode()
    upload = begun.partition("<UploadId>")[2].partition("</UploadId>")[0]
    tags = [fetched(page, presigned("PUT", f"parts?partNumber={number}&uploadId={upload}"), "PUT", size=size)["etag"]
            for number, size in enumerate(sizes, 1)]
    listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
                     for number, tag in enumerate(tags, 1))
    done = fetched(page, presigned("POST", f"parts?uploadId={upload}"), "POST",
                   body=f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>")
    assert done["status"] == 200 and "<ETag>" in done["text"], done
    suite.same(bare.get("parts"), b"".join(bytes(at * 31 % 251 for at in range(size)) for size in sizes), "its bytes")
    page.close()


with sync_playwright() as playwright:
    BROWSER = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"])
    tasks.main(a_form, a_form_against_its_policy, nothing_without_rules, fetch_after_a_preflight, errors_are_seen,
               another_site_may_not, parts_from_a_script)
