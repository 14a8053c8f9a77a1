// Disks of a round's own: one that is small, one whose file system can go read-only under a running
// brain, one whose power can be cut (power/disk.c). All of it takes root.
//
// A disk is mounted on a folder and taken away by `remove`, or when the process ends. Halley's
// data.dir is a folder on it that Halley makes itself, so that its name has to reach the disk too.

import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Queue, until } from '../../lib/wait.mjs';

const SOURCE = fileURLToPath(new URL('../power/disk.c', import.meta.url));
const UNMOUNT_MS_MAX = 20_000;
const JOURNAL_MB = 4;

const run = (program, ...options) =>
  execFileSync(program, options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();

const disks = new Set();
let catching = false;

// Before the folders are removed, which happens at the end of the process as well.
process.prependListener('exit', () => {
  for (const disk of disks) disk.remove();
});

/** A signal ends the process so that what is mounted is taken away. */
function catchSignals() {
  if (catching) return;
  catching = true;
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130));
}

/** A file system on a mount point; what it stands on is the business of its kinds. */
class Disk {
  isMounted = false;

  constructor(folder, { bytes }) {
    this.bytes = bytes;
    this.mountPoint = join(folder, 'disk');
    mkdirSync(this.mountPoint);
    disks.add(this);
  }

  /** Waits until nothing on it is open any more. */
  async unmount() {
    await until(`${this.mountPoint} is unmounted`, () => {
      run('umount', this.mountPoint);
      return true;
    }, UNMOUNT_MS_MAX);
    this.isMounted = false;
  }

  remove() {
    disks.delete(this);
    if (this.isMounted) run('umount', '-l', this.mountPoint);
    this.isMounted = false;
  }
}

class Tmpfs extends Disk {
  static async make(folder, profile) {
    const disk = new Tmpfs(folder, profile);
    run('mount', '-t', 'tmpfs', '-o', `size=${disk.bytes}`, 'tmpfs', disk.mountPoint);
    disk.isMounted = true;
    return disk;
  }
}

/** ext4 by a loop device on `file`. */
class Ext4 extends Disk {
  #device = null;
  #options;

  constructor(folder, profile) {
    super(folder, profile);
    this.file = join(folder, 'disk.image');
    // The kernel writes its journal this often: what nobody synced is safe only after that.
    this.#options = `errors=remount-ro,commit=${profile.commitS ?? 1}`;
    writeFileSync(this.file, '');
  }

  static async make(folder, profile) {
    const disk = new Ext4(folder, profile);
    run('truncate', '-s', `${disk.bytes}`, disk.file);
    disk.format();
    disk.mount();
    return disk;
  }

  #attach() {
    this.#device = run('losetup', '--find', '--show', '--direct-io=on', this.file);
  }

  #detach() {
    if (this.#device !== null) run('losetup', '-d', this.#device);
    this.#device = null;
  }

  format() {
    this.#attach();
    run('mkfs.ext4', '-q', '-E', 'nodiscard,lazy_itable_init=0,lazy_journal_init=0', '-m', '0',
      '-J', `size=${JOURNAL_MB}`, this.#device);
    this.#detach();
  }

  mount(more = '') {
    this.#attach();
    run('mount', '-o', this.#options + more, this.#device, this.mountPoint);
    this.isMounted = true;
  }

  /** Whether a file can be written and flushed, and its name. */
  isWritable() {
    const file = join(this.mountPoint, 'probe');
    try {
      run('dd', 'if=/dev/zero', `of=${file}`, 'bs=4096', 'count=1', 'conv=fsync');
      run('sync', file, this.mountPoint);
      rmSync(file);
      return true;
    } catch {
      return false;
    }
  }

  /** The file system finds an error, and lets nobody write any more, whoever has files open. It
   *  stays so until it is mounted anew. (`mount -o remount,ro` is refused while files are open, and
   *  the kernel writes on to a loop device that `blockdev --setro` made read-only.) */
  becomeReadOnly() {
    const name = basename(this.#device);
    writeFileSync(`/sys/fs/ext4/${name}/trigger_fs_error`, 'the checker wants it so');
  }

  async unmount() {
    await super.unmount();
    this.#detach();
  }

  remove() {
    super.remove();
    this.#detach();
  }
}

/** The same on a disk that knows what was flushed and what was not. */
class PowerDisk extends Ext4 {
  #daemon;
  #answers = new Queue();

  static async make(folder, profile) {
    const disk = new PowerDisk(folder, profile);
    const program = join(folder, 'power-disk');
    run('gcc', '-std=gnu11', '-O2', '-Wall', '-Wextra', '-Werror', '-o', program, SOURCE);
    await disk.#serve(program);
    disk.format();
    disk.mount();
    return disk;
  }

  async #serve(program) {
    this.#daemon = spawn(program, [this.file, `${this.bytes}`],
      { stdio: ['pipe', 'pipe', 'inherit'] });
    for (const handle of [this.#daemon, this.#daemon.stdin, this.#daemon.stdout]) handle.unref();
    let rest = '';
    this.#daemon.stdout.on('data', (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) this.#answers.push(line);
    });
    this.#daemon.once('close', (code) => this.#answers.end(`the disk exited with ${code}`));
    await this.#answers.next('the disk is ready');
  }

  async #ask(command) {
    this.#daemon.stdin.write(`${command}\n`);
    const [word, ...numbers] = (await this.#answers.next(command)).split(' ');
    if (word === 'unknown') throw new Error(`the disk does not know ${command}`);
    return numbers.map(Number);
  }

  /** Takes what a power cut now leaves. Gives `{cached, kept}`, counts of what wasn't flushed. */
  async cut({ style, percent, seed }) {
    const [cached, kept] = await this.#ask(`cut ${style} ${percent} ${seed}`);
    return { cached, kept };
  }

  async stats() {
    const [writes, flushes, cached] = await this.#ask('stats');
    return { writes, flushes, cached };
  }

  /** Writes and flushes fail with EIO while `during` runs; some may be lost then, as the kernel
   *  tries none of them again. */
  whileFailing(during) {
    return this.#while('fail', 'heal', during);
  }

  /** It answers nothing while `during` runs. */
  whileStill(during) {
    return this.#while('hold', 'go', during);
  }

  async #while(begins, ends, during) {
    await this.#ask(begins);
    try {
      await during();
    } finally {
      await this.#ask(ends);
    }
  }

  /** Power again: nobody has anything open any more. */
  async restore() {
    await this.unmount();
    await this.#ask('restore');
    this.mount();
  }

  remove() {
    super.remove();
    this.#daemon?.stdin.end();
    this.#daemon?.kill();
    try {
      run('umount', '-l', this.file);
    } catch {
      // it was quicker
    }
  }
}

const KINDS = { tmpfs: Tmpfs, ext4: Ext4, power: PowerDisk };

/** Makes and mounts the disk of a profile, `{kind, bytes}`, in `folder`. */
export function makeDisk(folder, disk) {
  catchSignals();
  return KINDS[disk.kind].make(folder, disk);
}
