// Clients of NATS JetStream, and the stream that they use. Not here: what they do (main.go).

package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names that lab/peers/nats.py's servers get from the first client.
const (
	stream   = "LAB"
	consumer = "lab"
	replicas = 3
)

// natsClient speaks NATS JetStream: one connection, one pull at a time.
type natsClient struct {
	conn     *nats.Conn
	stream   jetstream.JetStream
	subject  string
	messages jetstream.MessagesContext
	ended    chan struct{}
}

// openNats connects to the first address that answers.
func openNats(ctx context.Context, urls []string, subject string, gets bool) (client, error) {
	options := nats.GetDefaultOptions()
	options.Servers, options.NoRandomize = urls, true
	options.Timeout = time.Second
	// Who connects again is seen as a loss, so that the same is counted for all.
	options.AllowReconnect = false
	ended := make(chan struct{})
	options.ClosedCB = func(*nats.Conn) { close(ended) }
	conn, err := options.Connect()
	if err != nil {
		return nil, err
	}
	opened := &natsClient{conn: conn, subject: subject, ended: ended}
	if err := opened.attach(ctx, gets); err != nil {
		conn.Close()
		return nil, err
	}
	return opened, nil
}

func (one *natsClient) attach(ctx context.Context, gets bool) error {
	var err error
	if one.stream, err = jetstream.New(one.conn); err != nil || !gets {
		return err
	}
	found, err := one.stream.Consumer(ctx, stream, consumer)
	if err != nil {
		return err
	}
	one.messages, err = found.Messages(jetstream.PullMaxMessages(1))
	return err
}

func (one *natsClient) put(ctx context.Context, body []byte) error {
	// Without its own tries: here too a put is one put.
	_, err := one.stream.Publish(ctx, one.subject, body, jetstream.WithRetryAttempts(0))
	return err
}

func (one *natsClient) get(ctx context.Context) error {
	message, err := one.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return err
	}
	return message.Ack()
}

func (one *natsClient) gone() <-chan struct{} { return one.ended }

func (one *natsClient) close() {
	if one.messages != nil {
		one.messages.Stop()
	}
	one.conn.Close()
}

// prepareNats makes the stream and its consumer on three servers, waits until all have it, and says which server leads.
// Servers that have only just begun refuse until they have found each other, so it asks again.
func prepareNats(urls []string, subject string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		// A server that knows no leader yet does not answer at all.
		short, done := context.WithTimeout(ctx, 2*time.Second)
		leader, err := preparedNats(short, urls, subject)
		done()
		if err == nil || ctx.Err() != nil {
			return leader, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func preparedNats(ctx context.Context, urls []string, subject string) (string, error) {
	options := nats.GetDefaultOptions()
	options.Servers = urls
	conn, err := options.Connect()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	store, err := jetstream.New(conn)
	if err != nil {
		return "", err
	}
	made, err := store.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy,
		Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err != nil {
		return "", err
	}
	_, err = made.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		return "", err
	}
	about, err := made.Info(ctx)
	if err != nil {
		return "", err
	}
	if about.Cluster == nil || about.Cluster.Leader == "" || len(about.Cluster.Replicas) != replicas-1 {
		return "", errors.New("the stream has no leader yet")
	}
	for _, peer := range about.Cluster.Replicas {
		if !peer.Current || peer.Offline {
			return "", errors.New(peer.Name + " is not current yet")
		}
	}
	return about.Cluster.Leader, nil
}
