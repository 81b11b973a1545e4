'use strict';
// Records every address that this process connects a socket to, a line each, in the file named by MUSIC_CONNECTS.
const fs = require('fs');
const net = require('net');

const path = process.env.MUSIC_CONNECTS;
if (path) {
  const connect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function noting(...args) {
    const flat = Array.isArray(args[0]) ? args[0] : args;
    const to = typeof flat[0] === 'object' ? flat[0] : { port: flat[0], host: flat[1] };
    fs.appendFileSync(path, `${to.host}:${to.port}\n`);
    return connect.apply(this, args);
  };
}
