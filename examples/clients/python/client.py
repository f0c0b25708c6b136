"""Puts one message on a queue, or gets one: the least that a Python program needs.

    pip install python-qpid-proton==0.40.0
    python client.py amqp://127.0.0.1:5672 DEV.QUEUE.1 put hello
    python client.py amqp://127.0.0.1:5672 DEV.QUEUE.1 get

Not here: TLS, and a login with a name; docs/guides/connect-from-your-language.md has the lines for both.
"""

import sys

from proton import Message
from proton.utils import BlockingConnection

PATIENCE = 30  # seconds for any answer


def main(url, queue, verb, text=""):
    connection = BlockingConnection(url, timeout=PATIENCE, allowed_mechs="ANONYMOUS")
    try:
        if verb == "put":
            # Without durable the message lives in memory only, unless the queue has DEFPSIST(YES).
            # send returns when the message is accepted: it is on disk then.
            connection.create_sender(queue).send(Message(body=text, durable=True))
        else:
            receiver = connection.create_receiver(queue, credit=1)
            print(receiver.receive().body)
            # Only now is it gone from the queue.
            receiver.accept()
    finally:
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
