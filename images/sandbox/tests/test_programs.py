import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

WORKSPACE = pathlib.Path("/mnt/data")
LIB = "/usr/local/lib/carrel"

# As the runner's table of languages has them.
LANGUAGES = {
    "bash": ("main.sh", None, ["bash", "{src}"]),
    "py": ("main.py", None, ["python3", "{src}"]),
    "js": ("main.js", None, ["node", f"{LIB}/run.cjs", "{src}"]),
    "ts": ("main.ts", [f"{LIB}/ts-compile", "{src}", "{dir}/main.js"],
           ["node", "--enable-source-maps", f"{LIB}/run.cjs", "{dir}/main.js"]),
    "go": ("main.go", ["go", "build", "-o", "{dir}/main", "{src}"], ["{dir}/main"]),
    "c": ("main.c", ["gcc", "-std=gnu17", "-O1", "-g1", "-iquote", ".", "-pthread", "-o", "{dir}/main", "{src}", "-lm"],
          ["{dir}/main"]),
    "cpp": ("main.cpp", ["g++", "-std=gnu++20", "-O1", "-g1", "-iquote", ".", "-pthread", "-o", "{dir}/main", "{src}", "-lm"],
            ["{dir}/main"]),
}  # fmt: skip


def execute(language, source, *args, stdin=""):
    name, compile_command, run_command = LANGUAGES[language]
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = f"{directory}/{name}"
        pathlib.Path(path).write_text(source, encoding="utf-8")

        def call(command, extra=()):
            words = [w.replace("{src}", path).replace("{dir}", directory) for w in command]
            return subprocess.run([*words, *extra], cwd=WORKSPACE, input=stdin, capture_output=True, text=True, timeout=60)

        if compile_command:
            compiled = call(compile_command)
            if compiled.returncode != 0:
                return compiled
        return call(run_command, args)


class ProgramCase(unittest.TestCase):
    def setUp(self):
        self.before = set(os.listdir(WORKSPACE))

    def tearDown(self):
        for name in set(os.listdir(WORKSPACE)) - self.before:
            (WORKSPACE / name).unlink()

    def write(self, name, text):
        (WORKSPACE / name).write_text(text, encoding="utf-8")

    def assert_prints(self, language, source, expected, *args, **kwargs):
        r = execute(language, source, *args, **kwargs)
        self.assertEqual((r.stdout, r.stderr, r.returncode), (expected, "", 0))

    def assert_fails(self, language, source, *patterns):
        r = execute(language, source)
        self.assertNotEqual(r.returncode, 0)
        for pattern in patterns:
            self.assertRegex(r.stderr, pattern)
        self.assertNotIn("\x1b", r.stderr)


HELLO = {
    "bash": 'read -r line; echo "hello $1 $line"',
    "py": "import sys; print('hello', sys.argv[1], input())",
    "js": "console.log('hello', process.argv[2], require('fs').readFileSync(0, 'utf8'))",
    "ts": "const who: string = process.argv[2]; import fs from 'fs'; console.log('hello', who, fs.readFileSync(0, 'utf8'))",
    "go": 'package main\nimport ("bufio"; "fmt"; "os")\nfunc main() { s := bufio.NewScanner(os.Stdin); s.Scan(); fmt.Println("hello", os.Args[1], s.Text()) }',
    "c": '#include <stdio.h>\nint main(int c, char **v) { char b[20]; if (scanf("%19s", b) != 1) return c; printf("hello %s %s\\n", v[1], b); }',
    "cpp": '#include <iostream>\nint main(int, char **v) { std::string s; std::cin >> s; std::cout << "hello " << v[1] << " " << s << std::endl; }',
}  # fmt: skip


class Hello(ProgramCase):
    def test_every_language(self):
        for language, source in HELLO.items():
            with self.subTest(language=language):
                started = time.monotonic()
                self.assert_prints(language, source, "hello a b\n", "a", stdin="b")
                print(f"{language}: {(time.monotonic() - started) * 1000:.0f} ms")

    def test_nothing_is_left_in_the_workspace(self):
        for language, source in HELLO.items():
            execute(language, source, "a", stdin="b")
        self.assertEqual(set(os.listdir(WORKSPACE)), self.before)


class JavaScript(ProgramCase):
    def setUp(self):
        super().setUp()
        self.write("helper.mjs", "export const h = 7; export default 'default';")
        self.write("common.js", "module.exports = { c: 8 }")
        self.write("data.json", '{"j": 9}')

    def test_styles(self):
        for source, expected in (
            ("const { c } = require('./common'); console.log(c, require('./data.json').j, __dirname, require.main === module)",
             "8 9 /mnt/data true\n"),
            ("import { h } from './helper.mjs'; import c from './common.js'; console.log(h, c.c, import.meta.url)",
             "7 8 file:///mnt/data/main.js\n"),
            ("const x = await Promise.resolve(5); console.log(x)", "5\n"),
            ("const fs = require('fs'); const x = await Promise.resolve(5); console.log(x, typeof fs.readFileSync)", "5 function\n"),
            ("import os from 'os'; const fs = require('node:fs'); console.log(typeof os.cpus, typeof fs.statSync, __dirname)",
             "function function /mnt/data\n"),
            ("await (async () => { console.log('called') })()", "called\n"),
            ("for await (const x of [1, 2]) console.log(x)", "1\n2\n"),
            ("const m = await import('./helper.mjs'); console.log(m.default)", "default\n"),
            ("import path from 'path'; import { fileURLToPath } from 'url';\nconst __dirname = path.dirname(fileURLToPath(import.meta.url)); console.log(__dirname)",
             "/mnt/data\n"),
            ("async function f() { await (1); return 2 }\nf().then(console.log)", "2\n"),
            ("#!/usr/bin/env node\nconsole.log('shebang')", "shebang\n"),
            ("if (1) { return console.log('top-level return') }", "top-level return\n"),
            ("with ({ a: 1 }) console.log(a)", "1\n"),
        ):  # fmt: skip
            with self.subTest(source=source):
                self.assert_prints("js", source, expected)

    def test_errors_name_the_line(self):
        self.assert_fails("js", "const a = 1;\n\nthrow new Error('boom')", r"/mnt/data/main\.js:3", "Error: boom")
        self.assert_fails("js", "import fs from 'fs';\n\nthrow new Error('boom')", r"/mnt/data/main\.js:3", "Error: boom")
        self.assert_fails("js", "let a = 1;\nlet b = ;", r"main\.js:2", "SyntaxError")
        self.assert_fails("js", "import fs from 'fs';\nlet b = ;", r"main\.js:2", "SyntaxError")
        self.assert_fails("js", "require('nothing-like-it')", "Cannot find module 'nothing-like-it'")

    def test_exit_codes(self):
        self.assertEqual(execute("js", "process.exit(3)").returncode, 3)
        self.assertEqual(execute("js", "import 'fs'; process.exit(4)").returncode, 4)
        self.assertEqual(execute("js", "await new Promise(() => {})").returncode, 13)


class TypeScript(ProgramCase):
    def test_styles(self):
        self.write("part.ts", "export enum Color { Red, Green }\nexport const n: number = 11;")
        for source, expected in (
            ("import { Color, n } from './part';\nconsole.log(Color.Green, n, __dirname)", "1 11 /mnt/data\n"),
            ("interface A { n: number }\nconst a: A = { n: await Promise.resolve(4) };\nconsole.log(a.n)", "4\n"),
            ("const fs = require('fs');\nconst ok: boolean = fs.existsSync('part.ts');\nconsole.log(ok)", "true\n"),
            ("import * as fs from 'node:fs';\nconst f = <T,>(x: T): T => x;\nconsole.log(f(fs.existsSync('part.ts')))", "true\n"),
            ("class P { constructor(private readonly x: number) {} get() { return this.x } }\nconsole.log(new P(3).get())", "3\n"),
        ):
            with self.subTest(source=source):
                self.assert_prints("ts", source, expected)

    def test_errors_name_the_line_of_the_source(self):
        self.assert_fails("ts", "interface A {\n  n: number }\n\nthrow new Error('boom')", r"main\.ts:4", "Error: boom")
        self.assert_fails("ts", "const a: number = 1;\nconst b: = 2;", r"main\.ts:2", "ERROR")


class Compiled(ProgramCase):
    def test_compile_errors(self):
        self.assert_fails("go", 'package main\nfunc main() { x := 1 }', r"main\.go:2.*declared and not used")
        self.assert_fails("c", "int main(void) { return x; }", r"main\.c:1.*undeclared")
        self.assert_fails("cpp", "int main() { return x; }", r"main\.cpp:1.*not declared")

    def test_headers_beside_the_data(self):
        self.write("mine.h", "#define VALUE 5")
        source = '#include "mine.h"\n#include <stdio.h>\nint main(void) { printf("%d\\n", VALUE); }'
        self.assert_prints("c", source, "5\n")
        self.assert_prints("cpp", source, "5\n")

    def test_libraries(self):
        self.assert_prints("c", "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *p) { return p; }\nint main(int c, char **v) { pthread_t t; pthread_create(&t, 0, f, v); pthread_join(t, 0); printf(\"%.3f\\n\", sqrt(c + 1.0)); }", "1.414\n")
        self.assert_prints("cpp", "#include <format>\n#include <iostream>\n#include <ranges>\n#include <thread>\nint main() { std::jthread t([] { std::cout << std::format(\"{}\\n\", 42); }); }", "42\n")
        self.assert_prints("go", 'package main\nimport ("encoding/json"; "fmt"; "net/http"; "os/user"; "time")\nfunc main() { b, _ := json.Marshal(http.StatusOK); fmt.Println(string(b), time.Second); user.Current() }', "200 1s\n")
        self.assert_prints("go", 'package main\n// int five() { return 5; }\nimport "C"\nimport "fmt"\nfunc main() { fmt.Println(C.five()) }', "5\n")

    def test_go_is_quick_without_a_writable_cache(self):
        started = time.monotonic()
        execute("go", HELLO["go"], "a", stdin="b")
        self.assertLess(time.monotonic() - started, 3)


class PlainPython(ProgramCase):
    def figures(self):
        return sorted(n for n in os.listdir(WORKSPACE) if n.startswith("plot_"))

    def test_show_saves_each_figure_once(self):
        self.assert_prints("py", "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show(); plt.show()\nplt.figure(); plt.plot([1]); plt.figure(); plt.plot([2]); plt.show(); plt.close('all')", "")
        self.assertEqual(self.figures(), ["plot_1.png", "plot_2.png", "plot_3.png"])
        self.assertEqual((WORKSPACE / "plot_1.png").read_bytes()[:4], b"\x89PNG")

    def test_names_in_use_are_left_alone(self):
        self.write("plot_1.png", "mine")
        self.assert_prints("py", "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1]); fig.show(); plt.show()", "")
        self.assertEqual(self.figures(), ["plot_1.png", "plot_2.png"])
        self.assertEqual((WORKSPACE / "plot_1.png").read_text(), "mine")

    def test_savefig_and_other_backends(self):
        self.assert_prints("py", "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1]); plt.savefig('own.png'); plt.savefig('own.pdf'); plt.savefig('own.svg')", "")
        self.assertEqual(self.figures(), [])
        self.assertTrue({"own.png", "own.pdf", "own.svg"} <= set(os.listdir(WORKSPACE)))

    def test_cjk_glyphs(self):
        self.assert_prints("py", "import warnings; warnings.simplefilter('error')\nimport seaborn, matplotlib.pyplot as plt\nseaborn.set_theme(); plt.title('\u4e2d\u6587 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4'); plt.savefig('cjk.png')", "")

    def test_imports_from_the_directory_of_the_script(self):
        self.write("sibling.py", "v = 3")
        self.assert_prints("bash", "echo 'import sibling; print(sibling.v)' > s.py; python3 s.py; rm -r s.py __pycache__", "3\n")


class System(ProgramCase):
    def test_tools(self):
        tools = "bash jq git zip unzip file ffmpeg ffprobe curl bc sqlite3 pdftotext make xz zstd tree awk sed python pip node go gcc g++ esbuild"
        self.assert_prints("bash", f"for t in {tools}; do command -v $t > /dev/null || echo missing $t; done", "")

    def test_video(self):
        self.assert_prints("bash", "ffmpeg -v error -f lavfi -i testsrc=d=1:s=64x64 -c:v libx264 -pix_fmt yuv420p -y v.mp4 && ffprobe -v error -show_entries stream=codec_name -of csv=p=0 v.mp4", "h264\n")

    def test_locale_and_time_zones(self):
        self.assert_prints("bash", "locale charmap; TZ=Europe/Berlin date -d @0 +%H", "UTF-8\n01\n")

    def test_git_works_for_a_uid_without_a_name(self):
        self.assert_prints("bash", "cd $(mktemp -d) && git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --format=%s", "x\n")

    def test_tmp_takes_programs(self):
        self.assert_prints("bash", "printf '#!/bin/sh\\necho ran\\n' > /tmp/p; chmod +x /tmp/p; /tmp/p; rm /tmp/p", "ran\n")

    def test_manifest(self):
        with open("/usr/share/carrel/manifest.json", encoding="utf-8") as f:
            manifest = json.load(f)
        self.assertEqual(set(manifest["runtimes"]), {"python", "bash", "node", "typescript", "go", "c", "cpp"})
        for runtime, entry in manifest["runtimes"].items():
            self.assertTrue(re.match(r"\d+\.\d+", entry["version"]), runtime)
        self.assertIn("pandas", [e["name"] for e in manifest["libraries"]["python"]])
        self.assertIn("ffmpeg", [e["name"] for e in manifest["libraries"]["system"]])


if __name__ == "__main__":
    unittest.main()
