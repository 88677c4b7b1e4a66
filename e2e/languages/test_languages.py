"""Every language of the image through the service: hello, failure, arguments, input, characters, compile errors."""

import pytest

# one row a language; the programs print the same things
LANGUAGES = {
    "py": dict(
        hello="print('hello')", fail="import sys; print('oops', file=sys.stderr); sys.exit(3)",
        args="import sys; print(*sys.argv[1:], sep='|')", stdin="print(input()[::-1])",
        utf8="print('\u00fc\u4e16\U0001f600')", spin="while True: pass", bad="def f(:\n  pass"),
    "bash": dict(
        hello="echo hello", fail="echo oops >&2; exit 3", args="IFS='|'; echo \"$*\"", stdin="read x; echo \"$x\" | rev",
        utf8="echo '\u00fc\u4e16\U0001f600'", spin="while :; do :; done", bad="if then"),
    "js": dict(
        hello="console.log('hello')", fail="console.error('oops'); process.exit(3)",
        args="console.log(process.argv.slice(2).join('|'))",
        stdin="const s = require('fs').readFileSync(0, 'utf8').trim(); console.log([...s].reverse().join(''))",
        utf8="console.log('\u00fc\u4e16\U0001f600')", spin="for (;;) ;", bad="let = = 3"),
    "ts": dict(
        hello="const m: string = 'hello'; console.log(m)", fail="console.error('oops' as string); process.exit(3)",
        args="console.log((process.argv.slice(2) as string[]).join('|'))",
        stdin="import { readFileSync } from 'fs';\nconst s: string = readFileSync(0, 'utf8').trim();\n"
              "console.log([...s].reverse().join(''))",
        utf8="console.log('\u00fc\u4e16\U0001f600')", spin="for (;;) ;", bad="const x: = 3"),
    "go": dict(
        hello='package main\nimport "fmt"\nfunc main() { fmt.Println("hello") }',
        fail='package main\nimport "os"\nfunc main() { os.Stderr.WriteString("oops\\n"); os.Exit(3) }',
        args='package main\nimport ("fmt"; "os"; "strings")\nfunc main() { fmt.Println(strings.Join(os.Args[1:], "|")) }',
        stdin='package main\nimport "fmt"\nfunc main() { var s string; fmt.Scan(&s); r := []rune(s)\n'
              'for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 { r[i], r[j] = r[j], r[i] }; fmt.Println(string(r)) }',
        utf8='package main\nimport "fmt"\nfunc main() { fmt.Println("\u00fc\u4e16\U0001f600") }',
        spin="package main\nfunc main() { for {} }", bad="package main\nfunc main() { x := }"),
    "c": dict(
        hello='#include <stdio.h>\nint main(void) { puts("hello"); }',
        fail='#include <stdio.h>\nint main(void) { fputs("oops\\n", stderr); return 3; }',
        args='#include <stdio.h>\nint main(int c, char **v) { for (int i = 1; i < c; i++) '
             'printf("%s%s", i > 1 ? "|" : "", v[i]); puts(""); }',
        stdin='#include <stdio.h>\n#include <string.h>\nint main(void) { char b[99]; scanf("%98s", b); '
              'for (size_t i = strlen(b); i > 0; i--) putchar(b[i - 1]); puts(""); }',
        utf8='#include <stdio.h>\nint main(void) { puts("\u00fc\u4e16\U0001f600"); }',
        spin="int main(void) { volatile int i = 0; for (;;) i++; }", bad="int main( { }"),
    "cpp": dict(
        hello='#include <iostream>\nint main() { std::cout << "hello\\n"; }',
        fail='#include <iostream>\nint main() { std::cerr << "oops\\n"; return 3; }',
        args='#include <iostream>\nint main(int c, char **v) { for (int i = 1; i < c; i++) '
             'std::cout << (i > 1 ? "|" : "") << v[i]; std::cout << "\\n"; }',
        stdin='#include <iostream>\n#include <string>\nint main() { std::string s; std::cin >> s; '
              'std::cout << std::string(s.rbegin(), s.rend()) << "\\n"; }',
        utf8='#include <iostream>\nint main() { std::cout << "\u00fc\u4e16\U0001f600\\n"; }',
        spin="int main() { volatile int i = 0; for (;;) i = i + 1; }", bad="int main( { }"),
}
ALL = pytest.mark.parametrize("lang", sorted(LANGUAGES))


@ALL
def test_hello(client, eid, lang):
    a = client.exec(LANGUAGES[lang]["hello"], lang=lang, entity_id=eid)
    assert a["stdout"] == "hello\n" and a["stderr"] == "" and a["code"] == 0 and a["status"] is None
    assert a["language"] == lang and a["version"] and a["run"]["status"] == "success" and a["files"] == []


@ALL
def test_a_failing_program_is_an_answer(client, eid, lang):
    a = client.exec(LANGUAGES[lang]["fail"], lang=lang, entity_id=eid)
    assert a["code"] == 3 and a["status"] == "error" and a["stdout"] == "" and "oops\n" in a["stderr"]


@ALL
def test_arguments(client, eid, lang):
    a = client.exec(LANGUAGES[lang]["args"], lang=lang, entity_id=eid, args=["one", "two words", "\u00fc$HOME'\""])
    assert a["stdout"] == "one|two words|\u00fc$HOME'\"\n", a["stderr"]


@ALL
def test_standard_input(client, eid, lang):
    assert client.exec(LANGUAGES[lang]["stdin"], lang=lang, entity_id=eid, stdin="abc\n")["stdout"] == "cba\n"


@ALL
def test_characters(client, eid, lang):
    assert client.exec(LANGUAGES[lang]["utf8"], lang=lang, entity_id=eid)["stdout"] == "\u00fc\u4e16\U0001f600\n"


@ALL
def test_a_syntax_or_compile_error_is_shown(client, eid, lang):
    a = client.exec(LANGUAGES[lang]["bad"], lang=lang, entity_id=eid)
    assert a["code"] != 0 and a["status"] == "error" and "error" in a["stderr"].lower() and a["stdout"] == ""


@ALL
def test_a_time_limit(client, eid, lang):
    a = client.exec(LANGUAGES[lang]["spin"], lang=lang, entity_id=eid, timeout=1500)
    assert a["status"] == "TO" and a["code"] == 124


@pytest.mark.parametrize("lang", ["js", "ts"])
@pytest.mark.parametrize("code", [
    "import fs from 'fs'; console.log(typeof fs.readFileSync)",
    "const { promises } = await import('fs'); console.log(typeof promises.readFile === 'function' && 'function')",
    "console.log(await Promise.resolve('function'))",
    "const fs = require('fs'); console.log(typeof fs.readFileSync)",
])
def test_modules_and_top_level_await(client, eid, lang, code):
    a = client.exec(code, lang=lang, entity_id=eid)
    assert a["stdout"] == "function\n", a["stderr"]


@pytest.mark.parametrize("alias,lang", [("python", "py"), ("sh", "bash"), ("javascript", "js"), ("node", "js"),
                                        ("typescript", "ts"), ("c++", "cpp")])
def test_aliases(client, eid, alias, lang):
    a = client.exec(LANGUAGES[lang]["hello"], lang=alias, entity_id=eid)
    assert a["stdout"] == "hello\n" and a["language"] == alias


def test_a_crashing_program_names_its_signal(client, eid):
    a = client.exec("int main(void) { volatile int *p = 0; return *p; }", lang="c", entity_id=eid)
    assert a["status"] == "SG" and a["signal"] == "SIGSEGV" and a["code"] == 139


def test_bash_is_strict_by_default(client, eid):
    a = client.exec("false\necho not reached", lang="bash", entity_id=eid)
    assert a["code"] == 1 and a["stdout"] == ""


def test_programs_see_the_files_of_the_session(client, eid):
    client.exec("open('shared.txt', 'w').write('from python')", entity_id=eid)
    assert client.exec("cat shared.txt", lang="bash", entity_id=eid)["stdout"] == "from python"
    a = client.exec("require('fs').writeFileSync('out.json', '{}')", lang="js", entity_id=eid)
    assert [f["name"] for f in a["files"]] == ["out.json"] and a["files"][0]["contentType"] == "application/json"
