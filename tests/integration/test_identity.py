"""Who is let in, and that nobody reaches what belongs to somebody else: keys, LibreChat's tokens, open mode."""

import base64
import hashlib
import json
import os
import subprocess
import time

import pytest

from harness import Service, entity

KID = "lc-codeapi-2026-05"


def openssl(*args, data=None):
    return subprocess.run(["openssl", *args], input=data, check=True, capture_output=True).stdout


def b64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """A LibreChat's key pair, and the tokens it mints."""

    def __init__(self, directory, kind, kid=KID):
        self.kind, self.kid = kind, kid
        self.path = os.path.join(directory, f"{kid}.private")
        options = ["-algorithm", "ed25519"] if kind == "EdDSA" else ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
        openssl("genpkey", *options, "-out", self.path)
        self.public = openssl("pkey", "-in", self.path, "-pubout").decode()

    def sign(self, text):
        if self.kind == "RS256":
            return openssl("dgst", "-sha256", "-sign", self.path, data=text)
        with open(self.path + ".text", "wb") as f:  # pkeyutl signs Ed25519 from a file only: it needs the length
            f.write(text)
        return openssl("pkeyutl", "-sign", "-inkey", self.path, "-rawin", "-in", f.name)

    def token(self, sub, tenant=None, alg=None, **claims):
        now = int(time.time())
        header = {"alg": alg or self.kind, "typ": "JWT", "kid": self.kid}
        body = {"iss": "librechat", "aud": "codeapi", "sub": sub, "iat": now, "nbf": now, "exp": now + 300,
                "jti": "the-same-for-all", "role": "USER", "principal_source": "librechat_jwt", **claims}
        if tenant is not None:
            body["tenant_id"] = tenant
        text = ".".join(b64url(json.dumps(d).encode()) for d in (header, body))
        return f"{text}.{b64url(self.sign(text.encode()))}"


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def keys_file(directory, entries):
    path = os.path.join(directory, "keys.json")
    with open(path, "w") as f:
        json.dump([{"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}
                   for name, key, more in entries], f)
    return path


@pytest.fixture(scope="module")
def signers(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("jwt"))
    return Signer(directory, "EdDSA"), Signer(directory, "RS256", "rsa-2026")


@pytest.fixture(scope="module")
def service(signers, tmp_path_factory):
    """Everything at once: a key, a keys file, an Ed25519 key in the environment and an RSA key in a directory."""
    directory = str(tmp_path_factory.mktemp("public"))
    with open(os.path.join(directory, "rsa-2026.pem"), "w") as f:
        f.write(signers[1].public)
    keys = str(tmp_path_factory.mktemp("keys"))
    entries = [("desk", "desk-key", {}), ("other", "other-key", {}),
               ("chat", "chat-key", {"tenant": "acme", "trusted_user_header": True})]
    with Service(CODE_INTERPRETER_API_KEY="s3cret", API_KEYS_FILE=keys_file(keys, entries),
                 CODEAPI_JWT_PUBLIC_KEY=signers[0].public.replace("\n", "\\n"),
                 CODEAPI_JWT_PUBLIC_KEYS_DIR=directory) as s:
        yield s


def test_each_way_to_sign_in(service, signers):
    ed, rsa = signers
    good = ed.token("ann", "acme")
    stale = ed.token("ann", "acme", exp=int(time.time()) - 61)
    basic = {"Authorization": "Basic " + base64.b64encode(b"anybody:desk-key").decode()}
    table = [
        ({"X-API-Key": "s3cret"}, 200), ({"X-API-Key": "desk-key"}, 200), (bearer("desk-key"), 200), (basic, 200),
        (bearer(good), 200), (bearer(good), 200), (bearer(rsa.token("ann", "acme")), 200),
        ({"X-API-Key": "wrong", **bearer(good)}, 200), ({"X-API-Key": "s3cret", **bearer("wrong")}, 200),
        ({"X-API-Key": "s3cret", **bearer(stale)}, 200),
        ({}, 401), ({"X-API-Key": "wrong"}, 401), (bearer("wrong"), 401), ({"X-API-Key": "wrong", **bearer(stale)}, 401),
        (bearer(stale), 401), (bearer(ed.token("ann", nbf=int(time.time()) + 90)), 401),
        (bearer(ed.token("ann", iss="other")), 401), (bearer(ed.token("ann", aud="other")), 401),
        (bearer(ed.token("ann", alg="RS256")), 401), (bearer(ed.token("ann", alg="none")), 401),
        (bearer(good[:-4] + "AAAA"), 401),
    ]
    for headers, status in table:
        a = service.client().call("GET", "/libraries", headers=headers)
        assert a.status == status, (headers, a.status, a.body[:500])
        if status == 401:
            assert a.json["error"] == "unauthorized" and a.headers["WWW-Authenticate"], headers
    for path in ("/health", "/", "/openapi.json", "/v1/health"):
        assert service.client().call("GET", path).status == 200
    assert "max_sessions" not in service.client().call("GET", "/health").json
    assert service.client().call("GET", "/").json["authentication"] == "api-key, jwt"


def test_a_token_is_used_again(service, signers):
    c = service.client(**bearer(signers[0].token("reuse", "acme")))
    eid = entity()
    first = c.exec("x = 20", entity_id=eid)
    assert c.exec("print(x + 1)", entity_id=eid)["stdout"] == "21\n"
    later = service.client(**bearer(signers[1].token("reuse", "acme")))  # another token, another key, the same user
    assert later.exec("print(x + 2)", session_id=first["session_id"])["stdout"] == "22\n"


def test_a_trusted_key_names_the_user_that_a_token_names(service, signers):
    by_token = service.client(**bearer(signers[0].token("cid", "acme")))
    sid = by_token.upload([("mine.txt", b"cid's")])["session_id"]
    assert service.client(X_API_Key="chat-key", X_Carrel_User="cid").call("GET", f"/files/{sid}").status == 200
    assert service.client(X_API_Key="chat-key", X_Carrel_User="dan").call("GET", f"/files/{sid}").status == 404
    assert service.client(X_API_Key="chat-key").call("GET", f"/files/{sid}").status == 404
    # a key that is not trusted for it says nothing by the header
    assert service.client(X_API_Key="desk-key", X_Carrel_User="cid").call("GET", f"/files/{sid}").status == 404
    a = service.client(X_API_Key="chat-key", X_Carrel_User="{{LIBRECHAT_USER_ID}}").call("GET", "/libraries")
    assert a.status == 400 and "placeholder" in a.json["message"]


# ---- somebody else's ids ----

OWNED = b"the owner's bytes"


def own_things(owner):
    """What an owner has: a named session with variables and an output, and a file in it."""
    eid = entity()
    done = owner.exec(f"secret = 41; open('out.txt', 'wb').write({OWNED!r})", entity_id=eid)
    up = owner.upload([("up.txt", OWNED)], entity_id=eid)
    return eid, done["session_id"], done["files"][0]["id"], up["files"][0]["id"]


def refuses(a):
    assert a.status == 404, (a.status, a.body[:500])
    return a


def try_everything(owner, stranger):
    """Each route that takes an id, with the owner's, by the stranger. Gives rows (what, answer)."""
    eid, sid, out, up = own_things(owner)
    rows = []
    unknown = refuses(stranger.call("GET", f"/files/{'Z' * 21}")).json
    for method, path in [("GET", f"/files/{sid}"), ("GET", f"/v1/files/{sid}"),
                         ("GET", f"/files/{sid}?kind=user&id=ann&detail=summary"),
                         *[("DELETE", f"/files/{sid}/{f}") for f in (out, up)],
                         *[("GET", f"/download/{sid}/{f}") for f in (out, up)],
                         ("GET", f"/download/{sid}/{out}?kind=user&id=ann"), ("HEAD", f"/download/{sid}/{out}")]:
        a = refuses(stranger.call(method, path))
        rows.append((f"{method} {path.replace(sid, 'SID').replace(out, 'OUT').replace(up, 'UP')}", a.status))
        if path == f"/files/{sid}":
            assert a.json == unknown  # word for word what an id that nobody has answers
    own = stranger.upload([("own.txt", b"mine")])["session_id"]
    for f in (out, up):  # the owner's file below a session of the stranger's own
        rows.append(("GET /download/OWN/FILE", refuses(stranger.call("GET", f"/download/{own}/{f}")).status))
        rows.append(("DELETE /files/OWN/FILE", refuses(stranger.call("DELETE", f"/files/{own}/{f}")).status))

    look = "import os; print('secret' in globals(), sorted(os.listdir('.')))"
    for name, fields in (("session_id, user_id", {"session_id": sid, "user_id": "ann"}),
                         ("entity_id", {"entity_id": eid})):
        done = stranger.exec(look, **fields)
        assert done["session_id"] != sid and done["stdout"] == "False []\n", done
        rows.append((f"POST /exec {name}", "as not sent"))
    refs = [{"id": f, "name": f"{i}.txt", "session_id": sid, "storage_session_id": sid, "kind": "user",
             "resource_id": "ann"} for i, f in enumerate((out, up))]
    done = stranger.exec(look, files=refs)
    assert done["stdout"] == "False []\n" and [s["name"] for s in done["skipped_files"]] == ["0.txt", "1.txt"]
    assert "0.txt" in done["stderr"] and "1.txt" in done["stderr"]
    rows.append(("POST /exec files", "left out, named"))
    with stranger.stream("print(1)", session_id=sid, files=refs) as events:
        last = [doc for _, doc in events if doc][-1]
    assert last["session_id"] != sid and len(last["skipped_files"]) == 2
    rows.append(("POST /exec/stream session_id, files", "left out, named"))
    for name, fields in (("session_id", {"session_id": sid}), ("entity_id", {"entity_id": eid})):
        assert stranger.upload([("evil.txt", b"x")], **fields)["session_id"] != sid
        rows.append((f"POST /upload {name}", "as not sent"))

    # and the owner lost nothing by all that
    assert {f["id"] for f in owner.files(sid)} == {out, up}
    assert owner.download(sid, out).body == owner.download(sid, up).body == OWNED
    done = owner.exec("import os; print(secret, sorted(os.listdir('.')))", session_id=sid)
    assert done["session_id"] == sid and done["stdout"] == "41 ['out.txt', 'up.txt']\n"
    return rows


def clients(service, signers):
    ed, rsa = signers

    def user(signer, sub, tenant):
        return service.client(**bearer(signer.token(sub, tenant)))

    return {
        "two users of one tenant": (user(ed, "ann", "acme"), user(ed, "bob", "acme")),
        "the same user id in two tenants": (user(ed, "ann", "acme"), user(rsa, "ann", "umbrella")),
        "a user with tenant, one without": (user(ed, "ann", "acme"), user(ed, "ann", None)),
        "a user, and a key of the tenant": (user(ed, "ann", "acme"), service.client(X_API_Key="chat-key")),
        "two keys without tenant": (service.client(X_API_Key="desk-key"), service.client(X_API_Key="other-key")),
        "a key, and the admin's key": (service.client(X_API_Key="desk-key"), service.client(X_API_Key="s3cret")),
        "two users of a trusted key": (service.client(X_API_Key="chat-key", X_Carrel_User="eve"),
                                       service.client(X_API_Key="chat-key", X_Carrel_User="fay")),
    }


def test_another_principals_ids_answer_like_unknown_ones(service, signers, capsys):
    tables = {who: try_everything(*pair) for who, pair in clients(service, signers).items()}
    with capsys.disabled():
        for who, rows in tables.items():
            print(f"\n{who}: the owner's ids, tried by the other")
            for what, answer in rows:
                print(f"  {what:<52} {answer}")
    assert len({tuple(rows) for rows in tables.values()}) == 1  # nobody gets other answers


# ---- the other modes ----

def test_open_mode_needs_nothing_and_verifies_nothing():
    with Service() as s:
        c = s.client()
        assert c.call("GET", "/").json["authentication"] == "none"
        assert "security" not in c.call("GET", "/openapi.json").json
        sid = c.exec("print(1)")["session_id"]
        other = s.client(X_API_Key="any", X_Carrel_User="eve", Authorization="Bearer a.b.c")
        assert other.call("GET", f"/files/{sid}").status == 200  # one tenant, no users


def test_tokens_alone(signers):
    with Service(CODEAPI_JWT_PUBLIC_KEY=base64.b64encode(signers[0].public.encode()).decode()) as s:
        assert s.client().call("GET", "/").json["authentication"] == "jwt"
        assert s.client(X_API_Key="").call("GET", "/libraries").status == 401
        assert s.client(**bearer(signers[0].token("ann"))).exec("print(1)")["stdout"] == "1\n"
        assert s.client(**bearer(signers[1].token("ann"))).call("GET", "/libraries").status == 401


@pytest.mark.parametrize("settings, says", [
    ({"CODEAPI_JWT_PUBLIC_KEY": "rubbish"}, "CODEAPI_JWT_PUBLIC_KEY: not a public key"),
    ({"API_KEYS_FILE": "/nonexistent"}, "API_KEYS_FILE: /nonexistent"),
    ({"API_KEYS_FILE": "/dev/null"}, "API_KEYS_FILE: /dev/null"),
    ({"CODEAPI_JWT_JWKS_JSON": "{}", "AUTH": "none"}, "AUTH: none contradicts CODEAPI_JWT_JWKS_JSON"),
])
def test_bad_credentials_settings_stop_the_start(settings, says):
    s = Service(**settings)
    with pytest.raises(AssertionError, match="the service ended with 1") as e:
        s.start()
    assert says in str(e.value)
    s.__exit__(None, None, None)
