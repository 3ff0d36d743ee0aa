/**
 * What a module is loaded from. cuModuleLoadData is told no length: it reads PTX up to its NUL, and a cubin or a fatbin as
 * far as their headers say, so an image is looked at before the driver is given it. Layouts: elf(5) with machine 190
 * (EM_CUDA), and `fatBinaryHeader` of the toolkit's fatbinary headers.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";

const ELF_MAGIC = 0x464c_457f;
const ELF_HEADER_BYTES = 64;
const EM_CUDA = 190;
const FATBIN_MAGIC = 0xba55_ed50;
const FATBIN_HEADER_BYTES = 16;

/** PTX begins with its version (PTX ISA, "PTX Module Directives"), after comments. */
const PTX = /^(?:\s|\/\/[^\n]*\n|\/\*[\s\S]*?\*\/)*\.version\s/;

const ACCEPTED = "a cubin, a fatbin, or PTX text, which begins with its .version";

/**
 * Checks an image, and ends PTX with a NUL.
 * @throws InvalidArgumentError for an image that is not one, is empty, is for another machine, or ends before its headers say
 */
export function moduleImage(image: string | Uint8Array): Uint8Array {
  if (typeof image === "string") return ptxImage(image, () => Buffer.from(image, "utf8"));
  if (!(image instanceof Uint8Array)) throw new InvalidArgumentError("image", image, ACCEPTED);
  const { length } = image;
  const view = new DataView(image.buffer, image.byteOffset, length);
  const magic = length < 4 ? 0 : view.getUint32(0, true);
  if (magic === ELF_MAGIC) {
    checkWhole("cubin", length, length < ELF_HEADER_BYTES ? ELF_HEADER_BYTES : elfBytes(view));
    return image;
  }
  if (magic === FATBIN_MAGIC) {
    const end = length < FATBIN_HEADER_BYTES ? FATBIN_HEADER_BYTES : fatbinBytes(view);
    checkWhole("fatbin", length, end);
    return image;
  }
  const bytes = Buffer.from(image.buffer, image.byteOffset, length);
  return ptxImage(bytes.toString("latin1"), () => bytes);
}

function ptxImage(text: string, bytes: () => Uint8Array): Uint8Array {
  if (!PTX.test(text)) {
    const shown = text === "" ? "empty" : `${text.length} bytes that begin with ${text.slice(0, 16)}`;
    throw new InvalidArgumentError("image", described(shown), ACCEPTED);
  }
  return Buffer.concat([bytes(), Buffer.alloc(1)]);
}

function checkWhole(what: "cubin" | "fatbin", length: number, needed: number): void {
  if (length >= needed) return;
  throw new InvalidArgumentError(
    "image",
    described(`a ${what} of ${length} bytes`),
    `all of it: its headers tell of ${needed}`,
  );
}

/** Where the tables of an ELF file end. @throws InvalidArgumentError for one of another machine */
function elfBytes(view: DataView): number {
  const is64 = view.getUint8(4) === 2 && view.getUint8(5) === 1;
  const machine = view.getUint16(18, true);
  if (!is64 || machine !== EM_CUDA) {
    throw new InvalidArgumentError("image", described(`an ELF file of machine ${machine}`), ACCEPTED);
  }
  const tableEnd = (offsetAt: number, sizeAt: number) => {
    const numEntries = view.getUint16(sizeAt + 2, true);
    return numEntries === 0 ? 0 : Number(view.getBigUint64(offsetAt, true)) + view.getUint16(sizeAt, true) * numEntries;
  };
  return Math.max(ELF_HEADER_BYTES, tableEnd(32, 54), tableEnd(40, 58));
}

function fatbinBytes(view: DataView): number {
  return view.getUint16(6, true) + Number(view.getBigUint64(8, true));
}
