// Putting and getting with every mode, credit by hand, selectors, refusals, reconnecting.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

func putGet(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := put(session, "GO.PUT.GET", "a", "b", "c"); err != nil {
		return err
	}
	ctx, cancel := soon()
	defer cancel()
	receiver, err := session.NewReceiver(ctx, "GO.PUT.GET", nil)
	if err != nil {
		return err
	}
	if err := expect(receiver, "a", "b", "c"); err != nil {
		return err
	}
	return expectNothing(receiver)
}

// settleModes sends and receives in every mode that a link can ask for.
func settleModes(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := soon()
	defer cancel()
	senders := []amqp.SenderSettleMode{
		amqp.SenderSettleModeUnsettled, amqp.SenderSettleModeSettled, amqp.SenderSettleModeMixed,
	}
	receivers := []amqp.ReceiverSettleMode{
		amqp.ReceiverSettleModeFirst, amqp.ReceiverSettleModeSecond,
	}
	for number, sending := range senders {
		for _, receiving := range receivers {
			queue := fmt.Sprintf("GO.SETTLE.%v.%v", sending, receiving)
			sender, err := session.NewSender(ctx, queue, &amqp.SenderOptions{SettlementMode: &senders[number]})
			if err != nil {
				return err
			}
			if err := sender.Send(ctx, durable("one"), nil); err != nil {
				return fmt.Errorf("%s: %w", queue, err)
			}
			receiver, err := session.NewReceiver(ctx, queue, &amqp.ReceiverOptions{SettlementMode: receiving.Ptr()})
			if err != nil {
				return fmt.Errorf("%s: %w", queue, err)
			}
			if err := expect(receiver, "one"); err != nil {
				return fmt.Errorf("%s: %w", queue, err)
			}
			if err := expectNothing(receiver); err != nil {
				return fmt.Errorf("%s: %w", queue, err)
			}
		}
	}
	return nil
}

// outcomes gives a message back in each way before it accepts it.
func outcomes(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := put(session, "GO.OUTCOMES", "one"); err != nil {
		return err
	}
	ctx, cancel := soon()
	defer cancel()
	receiver, err := session.NewReceiver(ctx, "GO.OUTCOMES", &amqp.ReceiverOptions{Credit: 1})
	if err != nil {
		return err
	}
	counts := []uint32{0, 0, 1, 1}
	for attempt, count := range counts {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return fmt.Errorf("attempt %d: %w", attempt, err)
		}
		if message.Header.DeliveryCount != count {
			return fmt.Errorf("attempt %d: delivery count %d, expected %d", attempt, message.Header.DeliveryCount, count)
		}
		switch attempt {
		case 0:
			err = receiver.ReleaseMessage(ctx, message)
		case 1:
			err = receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true})
		case 2:
			err = receiver.ReleaseMessage(ctx, message)
		default:
			err = receiver.AcceptMessage(ctx, message)
		}
		if err != nil {
			return err
		}
	}
	return expectNothing(receiver)
}

// credit gives credit by hand: never more messages than that.
func credit(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := put(session, "GO.CREDIT", "a", "b", "c"); err != nil {
		return err
	}
	ctx, cancel := soon()
	defer cancel()
	receiver, err := session.NewReceiver(ctx, "GO.CREDIT", &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		return err
	}
	if err := expectNothing(receiver); err != nil {
		return err
	}
	if err := receiver.IssueCredit(2); err != nil {
		return err
	}
	if err := expect(receiver, "a", "b"); err != nil {
		return err
	}
	if err := expectNothing(receiver); err != nil {
		return err
	}
	if err := receiver.IssueCredit(1); err != nil {
		return err
	}
	return expect(receiver, "c")
}

// drain takes back credit that found no message.
func drain(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := soon()
	defer cancel()
	receiver, err := session.NewReceiver(ctx, "GO.DRAIN", &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		return err
	}
	for round := 0; round < 3; round++ {
		if err := receiver.IssueCredit(10); err != nil {
			return err
		}
		if err := receiver.DrainCredit(ctx, nil); err != nil {
			return fmt.Errorf("drain: %w", err)
		}
	}
	if err := put(session, "GO.DRAIN", "after"); err != nil {
		return err
	}
	if err := expectNothing(receiver); err != nil {
		return err
	}
	if err := receiver.IssueCredit(1); err != nil {
		return err
	}
	return expect(receiver, "after")
}

// concurrent lets many goroutines put and get over one connection.
func concurrent(url string, _ []string) error {
	conn, _, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	const workers, each = 8, 200
	failures := make(chan error, 2*workers)
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(2)
		go func() {
			defer group.Done()
			failures <- produce(conn, "GO.CONCURRENT", each)
		}()
		go func() {
			defer group.Done()
			failures <- consume(conn, "GO.CONCURRENT", each)
		}()
	}
	group.Wait()
	close(failures)
	for failure := range failures {
		if failure != nil {
			return failure
		}
	}
	return nil
}

func produce(conn *amqp.Conn, queue string, count int) error {
	ctx, cancel := soon()
	defer cancel()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, queue, nil)
	for number := 0; err == nil && number < count; number++ {
		err = sender.Send(ctx, durable("x"), nil)
	}
	return err
}

func consume(conn *amqp.Conn, queue string, count int) error {
	ctx, cancel := soon()
	defer cancel()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, queue, &amqp.ReceiverOptions{Credit: 1})
	for number := 0; err == nil && number < count; number++ {
		_, err = take(receiver)
	}
	if err != nil {
		return err
	}
	return receiver.Close(ctx)
}

func selector(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := soon()
	defer cancel()
	sender, err := session.NewSender(ctx, "GO.SELECTOR", nil)
	if err != nil {
		return err
	}
	for number := int64(0); number < 6; number++ {
		message := durable(fmt.Sprint(number))
		message.ApplicationProperties = map[string]any{"number": number}
		if err := sender.Send(ctx, message, nil); err != nil {
			return err
		}
	}
	filters := []amqp.LinkFilter{amqp.NewSelectorFilter("number = 2 OR number BETWEEN 4 AND 7")}
	if filters[0] == nil {
		return errors.New("no filter")
	}
	receiver, err := session.NewReceiver(ctx, "GO.SELECTOR", &amqp.ReceiverOptions{Filters: filters})
	if err != nil {
		return err
	}
	return expect(receiver, "2", "4", "5")
}

func unknownQueue(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := soon()
	defer cancel()
	if _, err := session.NewSender(ctx, "NO.SUCH.QUEUE", nil); !isCondition(err, amqp.ErrCondNotFound) {
		return fmt.Errorf("sender: %v", err)
	}
	if _, err := session.NewReceiver(ctx, "NO.SUCH.QUEUE", nil); !isCondition(err, amqp.ErrCondNotFound) {
		return fmt.Errorf("receiver: %v", err)
	}
	return put(session, "KNOWN", "the session goes on")
}

// isCondition looks for a condition in a link's end or in the answer to an attach.
func isCondition(err error, condition amqp.ErrCond) bool {
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		return link.RemoteErr.Condition == condition
	}
	var plain *amqp.Error
	return errors.As(err, &plain) && plain.Condition == condition
}

// messageTooBig is stopped by the client, who was told max-message-size: MAXMSGL, and 64 KiB for what
// stands around a body.
func messageTooBig(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := soon()
	defer cancel()
	sender, err := session.NewSender(ctx, "GO.BIG", nil)
	if err != nil {
		return err
	}
	if sender.MaxMessageSize() != 4194304+65536 {
		return fmt.Errorf("max-message-size is %d, MAXMSGL is 4194304", sender.MaxMessageSize())
	}
	if err := sender.Send(ctx, amqp.NewMessage(make([]byte, 5_000_000)), nil); err == nil {
		return errors.New("a message beyond MAXMSGL was sent")
	}
	return nil
}

func large(url string, arguments []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	body := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	if err := put(session, "GO.LARGE", string(body)); err != nil {
		return err
	}
	ctx, cancel := soon()
	defer cancel()
	receiver, err := session.NewReceiver(ctx, "GO.LARGE", &amqp.ReceiverOptions{Credit: 1})
	if err != nil {
		return err
	}
	return expect(receiver, string(body))
}

func dynamic(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := soon()
	defer cancel()
	inbox, err := session.NewReceiver(ctx, "", &amqp.ReceiverOptions{DynamicAddress: true})
	if err != nil {
		return err
	}
	if inbox.Address() == "" {
		return errors.New("no address")
	}
	if err := put(session, inbox.Address(), "reply"); err != nil {
		return err
	}
	return expect(inbox, "reply")
}

// reconnect works on after the queue manager was killed and started again between the lines.
func reconnect(url string, _ []string) error {
	conn, session, err := open(url, nil)
	if err != nil {
		return err
	}
	if err := put(session, "GO.RECONNECT", "before"); err != nil {
		return err
	}
	say("before")
	hear()
	select {
	case <-conn.Done():
	case <-time.After(patience):
		return errors.New("the lost connection was not noticed")
	}
	conn, session, err = open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := put(session, "GO.RECONNECT", "after"); err != nil {
		return err
	}
	ctx, cancel := soon()
	defer cancel()
	receiver, err := session.NewReceiver(ctx, "GO.RECONNECT", nil)
	if err != nil {
		return err
	}
	return expect(receiver, "before", "after")
}

// idleConnection stays open with nothing but the peer's empty frames.
func idleConnection(url string, _ []string) error {
	options := &amqp.ConnOptions{
		SASLType: amqp.SASLTypeAnonymous(), IdleTimeout: 500 * time.Millisecond,
	}
	conn, session, err := open(url, options)
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-conn.Done():
		return fmt.Errorf("the connection ended: %v", conn.Err())
	case <-time.After(2500 * time.Millisecond):
	}
	return put(session, "GO.IDLE", "still here")
}
