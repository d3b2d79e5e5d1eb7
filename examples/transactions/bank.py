"""A bank: each transfer is a debit in one topic and a credit in another, and both are there or neither is.

Two tellers move money at random between accounts, and refuse some transfers after they have written a part of them. A
third one takes over the transactional id of the first, which is then fenced. The sum of all balances never changes for
a reader of committed records.

Run it: python -m examples.transactions.bank [host:port]
"""

from __future__ import annotations

import json
import random
from collections import Counter

from examples.groups.cluster import bootstrap_servers, create_topic, new_name
from tidelog import Consumer, KafkaException, Producer, TopicPartition

ACCOUNTS = ("alice", "bob", "carol", "dave")
OPENING_BALANCE = 100
TRANSFERS = 30


class RefusedError(Exception):
    """A transfer that the bank refuses."""


class Teller:
    """Transfers money with one transactional id."""

    def __init__(self, servers: str, name: str, topics: dict[str, str]) -> None:
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        self._producer.init_transactions()

    def open_accounts(self) -> None:
        """Book the opening balances of all accounts, as one transaction."""
        with self._producer.transaction():
            for account in ACCOUNTS:
                self._book(account, OPENING_BALANCE)

    def transfer(self, source: str, target: str, amount: int, *, is_refused: bool) -> None:
        """Move an amount, or refuse that when the debit is already on its way.

        Raises:
            RefusedError: the transfer is refused.
            KafkaException: another teller has taken the transactional id.
        """
        with self._producer.transaction():
            self._book(source, -amount)
            if is_refused:
                raise RefusedError
            self._book(target, amount)

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()

    def _book(self, account: str, amount: int) -> None:
        self._producer.produce(self._topics[account], key=account, value=json.dumps(amount))


def balances(servers: str, topics: dict[str, str]) -> Counter[str]:
    """Return the balance of each account by its committed bookings."""
    found: Counter[str] = Counter()
    with Consumer({"bootstrap.servers": servers, "group.id": "audit", "enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics.values()])
        ends = 0
        while ends < len(topics):
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ends += 1
            else:
                found[message.key().decode()] += json.loads(message.value())
    return found


def work(teller: Teller, chance: random.Random) -> int:
    """Try some transfers, and return the number of those that were refused."""
    refused = 0
    for _ in range(TRANSFERS):
        source, target = chance.sample(ACCOUNTS, 2)
        try:
            teller.transfer(source, target, chance.randint(1, 20), is_refused=chance.random() < 0.3)
        except RefusedError:
            refused += 1
    return refused


def main() -> None:
    """Let tellers work, and audit the bank."""
    chance = random.Random(1)
    with bootstrap_servers() as servers:
        topics = {account: create_topic(servers, new_name(f"account-{account}"), 1) for account in ACCOUNTS}
        names = [new_name("teller"), new_name("teller")]
        first, second = (Teller(servers, name, topics) for name in names)
        first.open_accounts()
        refused = work(first, chance) + work(second, chance)
        successor = Teller(servers, names[0], topics)
        try:
            first.transfer("alice", "bob", 1_000_000, is_refused=False)
            raise AssertionError("two tellers have one transactional id")
        except KafkaException as error:
            print(f"the first teller is fenced: {error}")
        refused += work(successor, chance)
        for teller in (first, second, successor):
            teller.close()
        audited = balances(servers, topics)
    print(f"{3 * TRANSFERS - refused} transfers, {refused} refused: {dict(audited)}")
    assert refused
    assert sum(audited.values()) == len(ACCOUNTS) * OPENING_BALANCE


if __name__ == "__main__":
    main()
