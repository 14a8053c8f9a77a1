// The server's side of RFC 6455, as much as a scripted server needs: it also cuts frames in halves.

import { createHash } from 'node:crypto';

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const [TEXT, CLOSE, PING, PONG] = [1, 8, 9, 10];

function frame(opcode, payload) {
  const { length } = payload;
  const head = length < 126 ? Buffer.from([0x80 | opcode, length])
    : Buffer.from([0x80 | opcode, 126, length >> 8, length & 255]);
  return Buffer.concat([head, payload]);
}

export const text = (message) => frame(TEXT, Buffer.from(JSON.stringify(message)));
export const ping = () => frame(PING, Buffer.alloc(0));
export function close(code, reason) {
  return frame(CLOSE, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]));
}

export function accept(socket, key) {
  const hash = createHash('sha1').update(key + GUID).digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
    + `Sec-WebSocket-Accept: ${hash}\r\n\r\n`);
}

/** Calls `onText` with each message of the client; answers its pings and its close. */
export function read(socket, onText) {
  let rest = Buffer.alloc(0);
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, data]);
    for (let one = cutOff(rest); one !== null; one = cutOff(rest)) {
      rest = rest.subarray(one.bytes);
      if (one.opcode === TEXT) onText(one.payload.toString());
      else if (one.opcode === PING) socket.write(frame(PONG, one.payload));
      else if (one.opcode === CLOSE) socket.end(frame(CLOSE, one.payload.subarray(0, 2)));
    }
  });
}

/** The first whole frame, unmasked; clients send no fragments of what is so short. */
function cutOff(data) {
  if (data.length < 2) return null;
  const short = data[1] & 127;
  const at = short === 126 ? 4 : short === 127 ? 10 : 2;
  if (data.length < at + 4) return null;
  const length = short === 126 ? data.readUInt16BE(2)
    : short === 127 ? Number(data.readBigUInt64BE(2)) : short;
  const bytes = at + 4 + length;
  if (data.length < bytes) return null;
  const mask = data.subarray(at, at + 4);
  const payload = Buffer.from(data.subarray(at + 4, bytes)).map((byte, n) => byte ^ mask[n % 4]);
  return { opcode: data[0] & 15, payload, bytes };
}
