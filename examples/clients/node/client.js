// Puts one message on a queue, or gets one: the least that a Node program needs.
//
//   npm install
//   node client.js amqp://127.0.0.1:5672 DEV.QUEUE.1 put hello
//   node client.js amqp://127.0.0.1:5672 DEV.QUEUE.1 get
//
// Not here: TLS, and a login with a name; docs/guides/connect-from-your-language.md has the lines for both.
'use strict';

const rhea = require('rhea');

const [address, queue, verb, text] = process.argv.slice(2);
const url = new URL(address);
const connection = rhea.create_container().connect({
  host: url.hostname,
  port: Number(url.port || 5672),
  // By itself rhea tries for ever.
  reconnect: false,
});

if (verb === 'put') {
  const sender = connection.open_sender(queue);
  // Without durable the message lives in memory only, unless the queue has DEFPSIST(YES).
  sender.once('sendable', () => sender.send({ body: text, durable: true }));
  // Accepted: it is on disk.
  sender.once('accepted', () => connection.close());
  for (const refusal of ['rejected', 'released', 'modified']) {
    sender.once(refusal, ({ delivery }) => fail(delivery.remote_state.error ?? refusal));
  }
} else {
  // One message, which is accepted by hand: only then is it gone from the queue.
  const receiver = connection.open_receiver({ source: queue, credit_window: 0, autoaccept: false });
  receiver.add_credit(1);
  receiver.once('message', ({ message, delivery }) => {
    console.log(message.body);
    delivery.accept();
    connection.close();
  });
}

for (const trouble of ['connection_error', 'sender_error', 'receiver_error', 'disconnected']) {
  connection.on(trouble, (context) => {
    const link = context.sender ?? context.receiver;
    const error = connection.error ?? link?.error ?? context.error;
    if (error) fail(error);
  });
}

function fail(error) {
  console.error(error.description ?? error.message ?? error);
  process.exit(1);
}
