// Runs a program given as text as if it stood in the working directory:
//   node run.cjs SOURCE [argument ...]
// SOURCE lies in a private directory, but the program's own name, __dirname, import.meta.url, relative imports and
// node_modules are those of the working directory, where its data is and where its results belong.
// CommonJS and ES modules are told apart by what parses; what a module lacks of CommonJS (require, __dirname, ...)
// it gets as globals, so that programs which mix the two styles run as well.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const Module = require('module');
const { pathToFileURL } = require('url');

const MODULE_SYNTAX = /^Cannot use (import statement|'import\.meta') outside a module|^Unexpected token 'export'/;

function freeName(directory, extension) {
  for (let n = 0; ; n++) {
    const name = path.join(directory, `main${n ? `-${n}` : ''}${extension}`);
    if (!fs.existsSync(name)) return name;
  }
}

function syntaxError(source) {
  try {
    new vm.Script(source);
    return null;
  } catch (e) {
    if (e instanceof SyntaxError) return e.message;
    throw e;
  }
}

function isModule(source) {
  const error = syntaxError(Module.wrap(source));
  if (error === null)
    // "await (f())" is also a call of a function named await. A static block allows no such name.
    return /\bawait\s*[([`+/-]/.test(source) && /reserved|await/.test(syntaxError(`class C { static {${source}\n} }`) ?? '');
  if (MODULE_SYNTAX.test(error)) return true;
  // A top-level await fails in many ways, but is fine in an async function; only there an import may come into sight.
  const other = syntaxError(`(async () => {${source}\n})`);
  return other === null || MODULE_SYNTAX.test(other);
}

function runCommonJS(source, filename) {
  const main = new Module('.', null);
  main.filename = filename;
  main.paths = Module._nodeModulePaths(path.dirname(filename));
  Module._cache[filename] = main;
  process.mainModule = main;
  main._compile(source, filename);
  main.loaded = true;
}

function runModule(source, filename) {
  const url = pathToFileURL(filename).href;
  const lacking = {
    require: Module.createRequire(filename),
    module: { exports: {} },
    exports: {},
    __filename: filename,
    __dirname: path.dirname(filename),
  };
  for (const [name, value] of Object.entries(lacking))
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  Module.register(pathToFileURL(path.join(__dirname, 'hooks.mjs')), { data: { url, source } });

  let settled = false;
  process.on('exit', (code) => {
    if (settled || code !== 0) return;
    process.exitCode = 13;
    process.stderr.write('Warning: a top-level await never finished\n');
  });
  import(url).finally(() => { settled = true; });
}

const [sourceFile] = process.argv.splice(1, 2).slice(1);
if (!sourceFile) {
  process.stderr.write('usage: node run.cjs SOURCE [argument ...]\n');
  process.exit(2);
}
const source = fs.readFileSync(sourceFile, 'utf8').replace(/^\uFEFF/, '').replace(/^#!/, '//');
const filename = freeName(process.cwd(), path.extname(sourceFile) || '.js');
process.argv.splice(1, 0, filename);
if (isModule(source)) runModule(source, filename);
else runCommonJS(source, filename);
