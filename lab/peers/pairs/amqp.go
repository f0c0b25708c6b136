// Clients of AMQP 1.0 brokers. Not here: what they do (main.go).

package main

import (
	"context"
	"errors"

	"github.com/Azure/go-amqp"
)

// amqpClient speaks AMQP 1.0: one connection, one session, one link each way.
type amqpClient struct {
	conn     *amqp.Conn
	sender   *amqp.Sender
	receiver *amqp.Receiver
}

// openAmqp tries the addresses in order.
func openAmqp(ctx context.Context, urls []string, address string, gets bool) (client, error) {
	var all error
	for _, url := range urls {
		opened, err := openAmqpAt(ctx, url, address, gets)
		if err == nil {
			return opened, nil
		}
		all = errors.Join(all, err)
	}
	return nil, all
}

func openAmqpAt(ctx context.Context, url, address string, gets bool) (client, error) {
	conn, err := amqp.Dial(ctx, url, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		return nil, err
	}
	opened := &amqpClient{conn: conn}
	if err := opened.attach(ctx, address, gets); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return opened, nil
}

func (one *amqpClient) attach(ctx context.Context, address string, gets bool) error {
	session, err := one.conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	if one.sender, err = session.NewSender(ctx, address, nil); err != nil || !gets {
		return err
	}
	one.receiver, err = session.NewReceiver(ctx, address, &amqp.ReceiverOptions{Credit: 1})
	return err
}

func (one *amqpClient) put(ctx context.Context, body []byte) error {
	message := amqp.NewMessage(body)
	message.Header = &amqp.MessageHeader{Durable: true}
	receipt, err := one.sender.SendWithReceipt(ctx, message, nil)
	if err != nil {
		return err
	}
	state, err := receipt.Wait(ctx)
	if err != nil {
		return err
	}
	// Send alone would call `released` a success.
	if _, accepted := state.(*amqp.StateAccepted); !accepted {
		return errors.New("the put was not accepted")
	}
	return nil
}

func (one *amqpClient) get(ctx context.Context) error {
	message, err := one.receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	return one.receiver.AcceptMessage(ctx, message)
}

func (one *amqpClient) gone() <-chan struct{} { return one.conn.Done() }

func (one *amqpClient) close() { _ = one.conn.Close() }
