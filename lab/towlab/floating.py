"""A group on three machines with a floating address: clients on a fourth know only that one (the shape of RDQM).

Machines are network namespaces (`Lan`, root). Everything else is as in `towlab.group.Native`.
"""

from towlab.group import CLIENTS_PORT, Native

ADDRESS, BITS, INTERFACE = "10.78.0.50", 24, "eth0"


class Floating(Native):
    """The topology: as native, with one address that follows the active instance."""

    title, words = "floating", "a group on three machines, clients know only the address that follows the active one"
    needs_machines = True

    def config(self, name, papers):
        own = f'address = "{self.host(name)}:{CLIENTS_PORT}"'
        text = super().config(name, papers).replace(own, f'address = "{ADDRESS}:{CLIENTS_PORT}"', 1)
        return f'{text}\n[group.floating]\naddress = "{ADDRESS}/{BITS}"\ninterface = "{INTERFACE}"\n'

    def urls(self):
        return [f"amqp://{ADDRESS}:{CLIENTS_PORT}"]
