// The Halley of a round, with what faults do to it: its processes, its log, its disk, its clock.

import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { isAlive, kill, prepare, scratchFile } from '../../lib/halley.mjs';
import { jwks, makeKey } from '../../lib/token.mjs';
import { sleep, until } from '../../lib/wait.mjs';
import { makeDisk } from './disks.mjs';
import { doorOf } from './door.mjs';
import { makeKiller } from './processes.mjs';
import { hold, makeHolder, threadsOf } from './threads.mjs';
import { hookedTo } from './told.mjs';

const BACK_MS_MAX = 60_000;
const FAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1';

/** Why a profile can't be run on this machine, or undefined. */
export function missing(profile) {
  if (profile.fakesClock && !existsSync(FAKETIME)) return 'no libfaketime (package faketime)';
  if (profile.has?.includes('threads') && process.getuid() !== 0) {
    return 'holding a thread takes root';
  }
  if (!profile.disk) return undefined;
  if (process.getuid() !== 0) return 'mounting a disk takes root';
  const needed = { ext4: ['/dev/loop-control'], power: ['/dev/loop-control', '/dev/fuse'] };
  const none = (needed[profile.disk.kind] ?? []).find((path) => !existsSync(path));
  if (none) return `there is no ${none}`;
  return undefined;
}

export class Server {
  disk = null;
  /** Of hooks, in rounds that have them. */
  endpoint = null;
  /** Who is asked whom to let in, in rounds that have that. */
  door = null;
  /** With which tokens are signed, in rounds that have them. */
  tokenKey = null;

  static async start(profile) {
    const server = new Server();
    const halley = await prepare({ settings: profile.settings });
    server.halley = halley;
    server.clockFile = join(halley.folder, 'clock');
    try {
      if (profile.disk) server.disk = await makeDisk(halley.folder, profile.disk);
      if (server.disk) halley.settings.HALLEY_DATA_DIR = join(server.disk.mountPoint, 'data');
      server.dataDir = halley.settings.HALLEY_DATA_DIR;
      if (profile.fakesClock) server.#fakeClock();
      if (profile.has?.includes('threads')) server.holder = makeHolder(halley.folder);
      server.killer = makeKiller(halley.folder);
      Object.assign(halley.settings, server.killer.environment);
      if (profile.hasTokens) server.#wantTokens();
      if (profile.door) server.door = await doorOf(halley, profile.door);
      if (profile.hooks) server.endpoint = await hookedTo(halley, profile.hooks);
      await halley.start();
    } catch (error) {
      server.remove();
      throw error;
    }
    return server;
  }

  #wantTokens() {
    this.tokenKey = makeKey('EdDSA', 'a');
    this.halley.settings.HALLEY_AUTH_KEYS = scratchFile(this.halley, 'jwks.json',
      jwks(this.tokenKey));
  }

  #fakeClock() {
    this.setClock(0);
    Object.assign(this.halley.settings, {
      LD_PRELOAD: FAKETIME, FAKETIME_TIMESTAMP_FILE: this.clockFile, FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1', DONT_FAKE_MONOTONIC: '1',
      // The edge in its sandbox could not read what time it is to think.
      HALLEY_EDGE_SANDBOX: 'off',
    });
  }

  /** The server's wall clock is `seconds` off from now on. */
  setClock(seconds) {
    writeFileSync(this.clockFile, `${seconds < 0 ? '' : '+'}${seconds}\n`);
  }

  /** The segments of the history, oldest first. */
  segments() {
    const folder = join(this.dataDir, 'history');
    return readdirSync(folder).filter((name) => name.endsWith('.log')).sort()
      .map((name) => join(folder, name));
  }

  async killBrain() {
    await this.halley.killBrain();
  }

  /** Brain and edge die at the same moment. */
  async killBoth() {
    const killEdges = () => {
      const pids = this.halley.edgePids();
      for (const pid of pids) kill(pid, 'SIGKILL');
      return pids.length;
    };
    killEdges();
    await this.halley.killStarting();
    // Between the two the brain may have started another.
    await until('the edge has gone', () => killEdges() === 0, BACK_MS_MAX);
  }

  async startBrain() {
    await this.halley.start();
  }

  /** Gives the process id of the one that was killed, which may be there for a moment. */
  killEdge() {
    const pid = this.halley.edgePid();
    kill(pid, 'SIGKILL');
    return pid;
  }

  /** Waits until the edge that was killed has gone. */
  async edgeIsGone(pid) {
    await until('the killed edge has gone', () => !isAlive(pid), BACK_MS_MAX);
  }

  /** Waits until there is another edge than that one and the brain is linked with it. */
  async edgeIsBack(pid) {
    await this.edgeIsGone(pid);
    await until('another edge is there', () => this.halley.edgePids().length === 1, BACK_MS_MAX);
    await this.isReady();
  }

  async isReady() {
    await this.halley.ready();
  }

  /** The edge, or the brain, does nothing for `ms`. */
  async freeze(which, ms) {
    const pid = which === 'edge' ? this.halley.edgePid() : this.halley.brainPid();
    kill(pid, 'SIGSTOP');
    try {
      await sleep(ms);
    } finally {
      kill(pid, 'SIGCONT');
    }
  }

  /** A thread of the edge with such a name does nothing for `ms`; gives a note. */
  async holdThread(pattern, random, ms) {
    const [pid] = this.halley.edgePids();
    const threads = pid === undefined ? new Map() : threadsOf(pid, pattern);
    if (threads.size === 0) {
      await sleep(ms);
      return 'no edge';
    }
    const name = random.pick([...threads.keys()].sort());
    const isWhole = await hold(this.holder, threads.get(name), ms);
    return `${name}, ${ms} ms${isWhole ? '' : ', until the edge went'}`;
  }

  /** Dials the edge as a brain would, and goes away: the newest link wins, the old one is cut. */
  cutLink() {
    const socket = connect(join(this.dataDir, 'edge', 'trunk.sock'));
    return new Promise((resolve) => {
      socket.once('error', resolve);
      socket.once('connect', () => {
        socket.end();
        resolve();
      });
      socket.once('close', resolve);
    });
  }

  /** Kills what is left and takes the disk away. */
  remove() {
    if (this.halley) {
      this.halley.killProcesses();
      this.endpoint?.stop().catch(() => {});
      this.door?.stop().catch(() => {});
      this.disk?.remove();
      this.disk = null;
      this.halley.remove();
    }
  }
}
