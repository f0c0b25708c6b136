// Command go-client runs one scenario with go-amqp against a real queue manager:
// go-client SCENARIO URL ARGUMENTS... It ends with exit code 0 when all was as it should be.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

// patience is far above what an answer takes, also on a busy machine.
const patience = 20 * time.Second

// nothing is how long "nothing comes" is watched.
const nothing = 300 * time.Millisecond

// scenario is a proof that runs against a real queue manager.
type scenario func(url string, arguments []string) error

var scenarios = map[string]scenario{
	"put_get":         putGet,
	"settle_modes":    settleModes,
	"outcomes":        outcomes,
	"credit":          credit,
	"drain":           drain,
	"concurrent":      concurrent,
	"selector":        selector,
	"unknown_queue":   unknownQueue,
	"message_too_big": messageTooBig,
	"large":           large,
	"dynamic":         dynamic,
	"reconnect":       reconnect,
	"tls":             tlsLogin,
	"login_refused":   loginRefused,
	"idle_connection": idleConnection,
	"server_list":     serverList,
	"turned_away":     turnedAway,
}

func main() {
	if len(os.Args) < 3 || scenarios[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go-client SCENARIO URL ARGUMENTS...")
		os.Exit(2)
	}
	if err := scenarios[os.Args[1]](os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s failed: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	fmt.Println("passed", os.Args[1])
}

// say tells the test what was reached; hear waits until the test says a line.
func say(line string) { fmt.Println(line) }

func hear() { _, _ = bufio.NewReader(os.Stdin).ReadString('\n') }

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// open connects without a login and begins a session.
func open(url string, options *amqp.ConnOptions) (*amqp.Conn, *amqp.Session, error) {
	ctx, cancel := soon()
	defer cancel()
	if options == nil {
		options = &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	}
	conn, err := amqp.Dial(ctx, url, options)
	if err != nil {
		return nil, nil, err
	}
	session, err := conn.NewSession(ctx, nil)
	return conn, session, err
}

// durable makes a persistent message of a text.
func durable(text string) *amqp.Message {
	message := amqp.NewMessage([]byte(text))
	message.Header = &amqp.MessageHeader{Durable: true, Priority: 4}
	return message
}

// put sends persistent messages and waits until each is accepted.
func put(session *amqp.Session, queue string, texts ...string) error {
	ctx, cancel := soon()
	defer cancel()
	sender, err := session.NewSender(ctx, queue, nil)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if err := sender.Send(ctx, durable(text), nil); err != nil {
			return err
		}
	}
	return sender.Close(ctx)
}

// take receives and accepts one message and gives back its text.
func take(receiver *amqp.Receiver) (string, error) {
	ctx, cancel := soon()
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	if err != nil {
		return "", err
	}
	return string(message.GetData()), receiver.AcceptMessage(ctx, message)
}

// expect takes messages with exactly these texts, in this order.
func expect(receiver *amqp.Receiver, texts ...string) error {
	for _, text := range texts {
		seen, err := take(receiver)
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", text, err)
		}
		if seen != text {
			return fmt.Errorf("expected %q, but saw %q", text, seen)
		}
	}
	return nil
}

// expectNothing watches for a while that no message comes.
func expectNothing(receiver *amqp.Receiver) error {
	ctx, cancel := context.WithTimeout(context.Background(), nothing)
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	if err == nil {
		return fmt.Errorf("nothing was expected, but came %q", message.GetData())
	}
	return nil
}
