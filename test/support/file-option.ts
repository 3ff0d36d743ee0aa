/** One place of the command line that takes a file of somebody else's, with a file that is right there. */
export interface FileOption {
  readonly name: string;
  /** The file's name, by whose ending the command knows it. */
  readonly file: string;
  readonly content: Uint8Array;
  /** The words of the call. May write what the call needs beside the file into the file's folder. */
  readonly argv: (path: string) => readonly string[];
  /** It is a program, whose own errors have stacks. */
  readonly isProgram?: boolean;
  /** The file is named by CHORALE_CHOICES instead of by a word of the call. */
  readonly isMachineFile?: boolean;
  /** A call takes some tenths of a second, because it starts ranks or programs: campaigns make fewer mutants. */
  readonly isSlow?: boolean;
  /** The command leaves its process, half a second after its end, when threads of ranks are late to stop. */
  readonly mayLeave?: boolean;
}

/** Makes a call with the file that an option names, by its words or by the environment. */
export async function callWith<T>(
  option: FileOption,
  path: string,
  call: (argv: readonly string[]) => Promise<T>,
): Promise<T> {
  const before = process.env["CHORALE_CHOICES"];
  if (option.isMachineFile === true) process.env["CHORALE_CHOICES"] = path;
  try {
    return await call(option.argv(path));
  } finally {
    if (before === undefined) delete process.env["CHORALE_CHOICES"];
    else process.env["CHORALE_CHOICES"] = before;
  }
}
