// Logging in: TLS with passwords and with certificates, and refusals.

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/Azure/go-amqp"
)

// tlsLogin is `tls URL AUTHORITY MECHANISM [USER PASSWORD | CERTIFICATE KEY]`.
func tlsLogin(url string, arguments []string) error {
	pem, err := os.ReadFile(arguments[0])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("no certificate of the authority")
	}
	options := &amqp.ConnOptions{TLSConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"}}
	switch arguments[1] {
	case "PLAIN":
		options.SASLType = amqp.SASLTypePlain(arguments[2], arguments[3])
	case "EXTERNAL":
		own, err := tls.LoadX509KeyPair(arguments[2], arguments[3])
		if err != nil {
			return err
		}
		options.TLSConfig.Certificates = []tls.Certificate{own}
		options.SASLType = amqp.SASLTypeExternal("")
	default:
		options.SASLType = amqp.SASLTypeAnonymous()
	}
	conn, session, err := open(url, options)
	if err != nil {
		return err
	}
	defer conn.Close()
	return put(session, "GO.TLS", "secured")
}

// loginRefused is `login_refused URL USER PASSWORD`, with PLAIN.
func loginRefused(url string, arguments []string) error {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypePlain(arguments[0], arguments[1])}
	conn, _, err := open(url, options)
	if err == nil {
		conn.Close()
		return errors.New("logged in")
	}
	say(fmt.Sprintf("refused %v", err))
	return nil
}
