// The scenarios, each an async function of the URL and further arguments.
'use strict';

const {
  assert, connect, event, expect, hear, noEvent, put, receiver, rhea, say, sender,
} = require('./bed.js');

// Put and get, with the default settings of rhea (auto-settle, auto-accept, a credit window).
async function put_get(url) {
  const connection = await connect(url);
  await put(connection, 'NODE.PUT.GET', 'a', 'b', 'c');
  const link = receiver(connection, 'NODE.PUT.GET');
  await expect(link, 'a', 'b', 'c');
  await noEvent(link, 'message');
  connection.close();
}

// Bodies and sections of every kind come out as they went in.
async function bodies(url) {
  const connection = await connect(url);
  const sent = [
    'text', 17, true, null, [1, 'two'], { three: 3 }, Buffer.from([1, 2, 3]),
    rhea.message.data_section(Buffer.from('data')),
  ];
  await put(connection, 'NODE.BODIES', ...sent.map((body) => ({ body })));
  const link = receiver(connection, 'NODE.BODIES');
  for (const body of sent.slice(0, -1)) {
    assert.deepEqual((await link.next()).message.body, body);
  }
  assert.equal((await link.next()).message.body.content.toString(), 'data');
  const application_properties = { text: 'ü', number: 5, truth: false };
  await put(connection, 'NODE.BODIES', {
    body: 'x', subject: 'about', group_id: 'g', correlation_id: 'c', application_properties,
    message_annotations: { 'x-opt-mine': 'kept' },
  });
  const { message } = await link.next();
  assert.equal(message.subject, 'about');
  assert.equal(message.group_id, 'g');
  assert.equal(message.correlation_id, 'c');
  assert.deepEqual(message.application_properties, application_properties);
  assert.equal(message.message_annotations['x-opt-mine'], 'kept');
  connection.close();
}

// Pre-settled transfers both ways.
async function pre_settled(url) {
  const connection = await connect(url);
  const out = await sender(connection, { target: 'NODE.SETTLED', snd_settle_mode: 1 });
  for (let number = 0; number < 50; number += 1) out.send({ body: number });
  const link = receiver(connection, { source: 'NODE.SETTLED', snd_settle_mode: 1 });
  for (let number = 0; number < 50; number += 1) {
    const context = await link.next();
    assert.equal(context.message.body, number);
    assert.equal(context.delivery.settled || context.delivery.remote_settled, true);
  }
  connection.close();
}

// The receiver settles second: the outcome is answered by the queue manager.
async function settle_second(url) {
  const connection = await connect(url);
  await put(connection, 'NODE.SECOND', 'a');
  const link = receiver(connection, {
    source: 'NODE.SECOND', rcv_settle_mode: 1, autoaccept: false, autosettle: false,
  });
  const { delivery } = await link.next();
  const settled = event(link, 'settled');
  delivery.update(false, rhea.message.accepted().described());
  await settled;
  delivery.update(true);
  await noEvent(link, 'message');
  connection.close();
}

// released, modified and rejected.
async function outcomes(url, deadLetterQueue) {
  const connection = await connect(url);
  await put(connection, 'NODE.OUTCOMES', 'a');
  const link = receiver(connection, { source: 'NODE.OUTCOMES', autoaccept: false, credit_window: 1 });
  let context = await link.next();
  assert.equal(context.message.delivery_count || 0, 0);
  context.delivery.release();
  context = await link.next();
  assert.equal(context.message.delivery_count || 0, 0);
  context.delivery.modified({ delivery_failed: true });
  context = await link.next();
  assert.equal(context.message.delivery_count, 1);
  context.delivery.reject({ condition: 'app:poison', description: 'bad' });
  const dead = receiver(connection, deadLetterQueue);
  await expect(dead, 'a');
  connection.close();
}

// Credit by hand, and a drain that gives back what was not used.
async function credit_and_drain(url) {
  const connection = await connect(url);
  await put(connection, 'NODE.CREDIT', 'a', 'b', 'c');
  const link = receiver(connection, { source: 'NODE.CREDIT', credit_window: 0 });
  await event(link, 'receiver_open');
  await noEvent(link, 'message');
  link.add_credit(2);
  await expect(link, 'a', 'b');
  await noEvent(link, 'message');
  link.add_credit(10);
  await expect(link, 'c');
  link.drain_credit();
  await event(link, 'receiver_drained');
  link.drain = false;
  await put(connection, 'NODE.CREDIT', 'd');
  await noEvent(link, 'message');
  link.add_credit(1);
  await expect(link, 'd');
  connection.close();
}

// Requests over an anonymous sender, replies over a dynamic address.
async function request_reply(url) {
  const serving = await connect(url);
  const requests = serving.open_receiver('NODE.REQUESTS');
  const replies = serving.open_sender({ target: {} });
  requests.on('message', ({ message }) => {
    replies.send({
      to: message.reply_to, correlation_id: message.correlation_id, body: `re: ${message.body}`,
    });
  });
  await event(replies, 'sendable');
  const asking = await connect(url);
  const inbox = receiver(asking, { source: { dynamic: true } });
  await event(inbox, 'receiver_open');
  const reply_to = inbox.source.address;
  assert.ok(reply_to);
  for (let number = 0; number < 10; number += 1) {
    await put(asking, 'NODE.REQUESTS', { body: number, reply_to, correlation_id: `n${number}` });
    const { message } = await inbox.next();
    assert.equal(message.body, `re: ${number}`);
    assert.equal(message.correlation_id, `n${number}`);
  }
  asking.close();
  serving.close();
}

// A selector, and a browser.
async function selector_and_browse(url) {
  const connection = await connect(url);
  for (let number = 0; number < 6; number += 1) {
    await put(connection, 'NODE.SELECTOR', { body: number, application_properties: { number } });
  }
  const browser = receiver(connection, {
    source: { address: 'NODE.SELECTOR', distribution_mode: 'copy' }, name: 'browser',
  });
  await expect(browser, 0, 1, 2, 3, 4, 5);
  browser.close();
  const some = receiver(connection, {
    source: { address: 'NODE.SELECTOR', filter: rhea.filter.selector('number > 3') }, name: 'some',
  });
  await expect(some, 4, 5);
  some.close();
  const rest = receiver(connection, { source: 'NODE.SELECTOR', name: 'rest' });
  await expect(rest, 0, 1, 2, 3);
  connection.close();
}

// Refusals close the link with a condition and leave the connection alone.
async function refusals(url) {
  const connection = await connect(url);
  const unknown = connection.open_sender('NO.SUCH.QUEUE');
  await event(unknown, 'sender_error');
  assert.equal(unknown.error.condition, 'amqp:not-found');
  const out = await sender(connection, 'KNOWN');
  const closed = Promise.race([event(out, 'sender_error'), event(out, 'rejected')]);
  out.send({ body: Buffer.alloc(5000000), durable: true });
  await closed;
  await put(connection, 'KNOWN', 'the connection goes on');
  connection.close();
}

// rhea's own reconnecting; the test restarts the queue manager between the lines.
async function reconnect(url) {
  const connection = await connect(url, { reconnect: true, initial_reconnect_delay: 20, max_reconnect_delay: 200 });
  await put(connection, 'NODE.RECONNECT', 'before');
  const link = receiver(connection, 'NODE.RECONNECT');
  await expect(link, 'before');
  const again = event(connection, 'connection_open', 60000);
  say('before');
  await hear();
  await again;
  await put(connection, 'NODE.RECONNECT', 'after');
  await expect(link, 'after');
  connection.close();
}

// rhea's default idle time-out handling, with a short time on both sides.
async function idle(url) {
  const connection = await connect(url, { idle_time_out: 600 });
  await assert.rejects(event(connection, 'disconnected', 2500), /did not come/);
  await put(connection, 'NODE.IDLE', 'still here');
  connection.close();
}

module.exports = {
  bodies, credit_and_drain, idle, outcomes, pre_settled, put_get, reconnect, refusals,
  request_reply, selector_and_browse, settle_second,
};
