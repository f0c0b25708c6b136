// Two regions: the list of addresses in the open frame, and being turned away.

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/go-amqp"
)

// serverList is `server_list URL [HOST:PORT...]`: the open frame has exactly this list, or none.
func serverList(url string, arguments []string) error {
	conn, _, err := open(url, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	value, given := conn.Properties()["failover-server-list"]
	if !given {
		if len(arguments) == 0 {
			return nil
		}
		return errors.New("there is no list")
	}
	list, fine := value.([]any)
	if !fine {
		return fmt.Errorf("the list is a %T", value)
	}
	var seen []string
	for _, each := range list {
		entry := fields(each)
		if entry["scheme"] != "amqp" || entry["hostname"] != entry["network-host"] {
			return fmt.Errorf("an entry is %v", entry)
		}
		seen = append(seen, entry["network-host"]+":"+entry["port"])
	}
	if strings.Join(seen, " ") != strings.Join(arguments, " ") {
		return fmt.Errorf("expected %v, but saw %v", arguments, seen)
	}
	return nil
}

// turnedAway is `turned_away URL CONDITION PART [HOST:PORT]`: the connection is closed with this
// condition, a description that has this part, and, if given, this address.
func turnedAway(url string, arguments []string) error {
	conn, _, err := open(url, nil)
	if err == nil {
		conn.Close()
		return errors.New("it was let in")
	}
	var closed *amqp.ConnError
	if !errors.As(err, &closed) || closed.RemoteErr == nil {
		return fmt.Errorf("it got no close: %w", err)
	}
	remote := closed.RemoteErr
	if string(remote.Condition) != arguments[0] || !strings.Contains(remote.Description, arguments[1]) {
		return fmt.Errorf("it was closed with %v", remote)
	}
	if len(arguments) > 2 {
		entry := fields(remote.Info)
		if seen := entry["network-host"] + ":" + entry["port"]; seen != arguments[2] {
			return fmt.Errorf("it was sent to %v", seen)
		}
	}
	return nil
}

// fields makes texts of a map, whatever the types of its keys are.
func fields(value any) map[string]string {
	texts := map[string]string{}
	switch entries := value.(type) {
	case map[any]any:
		for key, field := range entries {
			texts[fmt.Sprint(key)] = fmt.Sprint(field)
		}
	case map[amqp.Symbol]any:
		for key, field := range entries {
			texts[string(key)] = fmt.Sprint(field)
		}
	case map[string]any:
		for key, field := range entries {
			texts[key] = fmt.Sprint(field)
		}
	}
	return texts
}
