// Module hooks of run.cjs: the program's URL has no file behind it, only the text it was given.
let program;

export function initialize(data) {
  program = data;
}

export async function resolve(specifier, context, nextResolve) {
  if (specifier === program.url) return { url: specifier, format: 'module', shortCircuit: true };
  return nextResolve(specifier, context);
}

export async function load(url, context, nextLoad) {
  if (url === program.url) return { format: 'module', source: program.source, shortCircuit: true };
  return nextLoad(url, context);
}
