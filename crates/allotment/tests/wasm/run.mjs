// Runs the module that is named on the command line: `node run.mjs claims.wasm`.
import { readFileSync } from "node:fs";

const host = {
    print: (start, len) =>
        console.log(new TextDecoder().decode(new Uint8Array(instance.exports.memory.buffer, start, len))),
};
const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), { host });
instance.exports.check_all();
console.log("all hold");
