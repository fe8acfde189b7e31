"""A hundred records that are read all or not at all: one transaction, with each error handled as its facts say."""
from __future__ import annotations

from pyclient import Producer
from pyclient.errors import KafkaError


def write_numbers(bootstrap_servers: str, topic: str, transactional_id: str) -> bool:
    """Write the keys and values 0 to 99 in one transaction; returns whether it was committed.

    Raises:
        KafkaError: another producer with the same id has taken over, or this one cannot continue.
    """
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id, key_serializer="string",
                  value_serializer="string") as producer:
        producer.init_transactions()
        try:
            producer.begin_transaction()
            for number in range(100):
                producer.send(topic, str(number), key=str(number))
            producer.commit_transaction()
        except KafkaError as error:
            if error.fatal:
                raise  # the end of the block closes the producer
            producer.abort_transaction()
            return False
        return True
