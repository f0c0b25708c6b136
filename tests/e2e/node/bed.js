// What the scenarios stand on: connections, events as promises with a time limit, checks.
'use strict';

const assert = require('node:assert/strict');
const readline = require('node:readline');
const rhea = require('rhea');

// Milliseconds. Answers come at once; this is for a busy machine.
const PATIENCE = 20000;
// Milliseconds for which "nothing comes" is watched.
const NOTHING = 300;

// Waits for an event of an emitter; fails when it does not come in time.
function event(emitter, name, limit = PATIENCE) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      emitter.removeListener(name, heard);
      reject(new Error(`${name} did not come within ${limit} ms`));
    }, limit);
    function heard(context) {
      clearTimeout(timer);
      resolve(context);
    }
    emitter.once(name, heard);
  });
}

// Watches for a while that an event does not come.
async function noEvent(emitter, name) {
  const heard = await event(emitter, name, NOTHING).catch(() => undefined);
  assert.equal(heard, undefined, `${name} was not expected`);
}

// Connects without a login. Further options are rhea's.
async function connect(url, options = {}) {
  const container = rhea.create_container();
  const connection = container.connect({
    host: url.hostname,
    port: Number(url.port),
    reconnect: false,
    ...options,
  });
  // An error is what a scenario waits for or what makes its waiting fail.
  for (const name of ['connection_error', 'session_error', 'disconnected']) {
    connection.on(name, () => {});
  }
  await event(connection, 'connection_open');
  return connection;
}

// Opens a sender and waits for credit.
async function sender(connection, options) {
  const link = connection.open_sender(options);
  await event(link, 'sendable');
  return link;
}

// Sends persistent messages and waits until each is accepted.
async function put(connection, queue, ...bodies) {
  const link = await sender(connection, queue);
  for (const body of bodies) {
    link.send(typeof body === 'object' ? { durable: true, ...body } : { durable: true, body });
    await event(link, 'accepted');
  }
  link.close();
  await event(link, 'sender_close');
}

// A receiver whose messages are taken one by one with `next`.
function receiver(connection, options) {
  const arrived = [];
  const waiting = [];
  const link = connection.open_receiver(options);
  link.on('message', (context) => {
    const wanted = waiting.shift();
    if (wanted) wanted(context);
    else arrived.push(context);
  });
  link.next = () => {
    if (arrived.length > 0) return Promise.resolve(arrived.shift());
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no message came')), PATIENCE);
      waiting.push((context) => {
        clearTimeout(timer);
        resolve(context);
      });
    });
  };
  link.waiting_count = () => arrived.length;
  return link;
}

// Takes messages with exactly these bodies, in this order.
async function expect(link, ...bodies) {
  for (const body of bodies) {
    const { message } = await link.next();
    assert.deepEqual(message.body, body);
  }
}

function say(line) {
  console.log(line);
}

// Waits until the test says a line.
function hear() {
  const lines = readline.createInterface({ input: process.stdin });
  return new Promise((resolve) => lines.once('line', resolve));
}

module.exports = { assert, connect, event, expect, hear, noEvent, put, receiver, rhea, say, sender };
