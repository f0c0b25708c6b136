// Puts one message on a queue, or gets one: the least that a Go program needs.
//
//	go run . amqp://127.0.0.1:5672 DEV.QUEUE.1 put hello
//	go run . amqp://127.0.0.1:5672 DEV.QUEUE.1 get
//
// Not here: TLS, and a login with a name; docs/guides/connect-from-your-language.md has the lines for both.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

// For all of it.
const patience = 30 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) < 3 || (words[2] == "put" && len(words) < 4) {
		return errors.New("usage: URL QUEUE put TEXT, or URL QUEUE get")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := amqp.Dial(ctx, words[0], &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	if words[2] == "put" {
		return put(ctx, session, words[1], words[3])
	}
	return get(ctx, session, words[1])
}

func put(ctx context.Context, session *amqp.Session, queue, text string) error {
	sender, err := session.NewSender(ctx, queue, nil)
	if err != nil {
		return err
	}
	message := &amqp.Message{
		// Without Durable the message lives in memory only, unless the queue has DEFPSIST(YES).
		Header: &amqp.MessageHeader{Durable: true},
		// A string. amqp.NewMessage makes a body of bytes.
		Value: text,
	}
	// Returns when the message is accepted: it is on disk then.
	return sender.Send(ctx, message, nil)
}

func get(ctx context.Context, session *amqp.Session, queue string) error {
	receiver, err := session.NewReceiver(ctx, queue, &amqp.ReceiverOptions{Credit: 1})
	if err != nil {
		return err
	}
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		return err
	}
	if message.Value != nil {
		fmt.Println(message.Value)
	} else {
		fmt.Println(string(message.GetData()))
	}
	// Only now is it gone from the queue.
	return receiver.AcceptMessage(ctx, message)
}
