"""Which partitions of the transaction log this node answers for, and the ids it keeps for them.

Source: docs/spec/transactions.md §1.1, §3.2 and §3.3. Ids belong to a term and go with it: nothing
that was begun in one term can find, or change, what the next one keeps (KAFKA-16352).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.terms import LeadershipTerm, TermRegistry

from .replay import TransactionReplay
from .transaction import Transaction
from .transaction_record import id_of, key_of, metadata_of
from .transaction_state import MAY_EXPIRE


class TransactionTerm(LeadershipTerm):
    """One time of leading one partition of the transaction log."""

    __slots__ = ("stored", "transactions", "unfinished")

    def __init__(self, partition: int, leader_epoch: int) -> None:
        super().__init__(partition, leader_epoch)
        self.stored: dict[bytes, bytes] = {}
        """Key and value of each id that nobody has asked for in this term."""
        self.transactions: dict[str, Transaction] = {}
        """The other ids; none of these is in ``stored``."""
        self.unfinished: dict[Transaction, None] = {}
        """Of those, the ones with a transaction that is open or about to end."""

    def __len__(self) -> int:
        return len(self.stored) + len(self.transactions)

    def find(self, transactional_id: str) -> Transaction | None:
        """What is kept for an id; None for an unknown one."""
        found = self.transactions.get(transactional_id)
        if found is None and self.stored:
            return self._take_out(key_of(transactional_id), transactional_id)
        return found

    def find_by_key(self, key: bytes) -> Transaction | None:
        """The same by the key of its records."""
        return self.find(id_of(key))

    def _take_out(self, key: bytes, transactional_id: str) -> Transaction | None:
        value = self.stored.pop(key, None)
        if value is None:
            return None
        found = Transaction(transactional_id, metadata_of(value), self)
        self.transactions[transactional_id] = found
        return found

    def add(self, transaction: Transaction) -> None:
        """An id is new here."""
        assert self.find(transaction.transactional_id) is None
        self.transactions[transaction.transactional_id] = transaction

    def remove(self, transaction: Transaction) -> None:
        """An id has expired. Nothing happens where it was gone already, or made anew."""
        if self.transactions.get(transaction.transactional_id) is transaction:
            del self.transactions[transaction.transactional_id]

    def note(self, transaction: Transaction) -> None:
        """The state of an id has changed."""
        if transaction.state in MAY_EXPIRE:
            self.unfinished.pop(transaction, None)
        else:
            self.unfinished[transaction] = None

    def clear(self) -> list[Transaction]:
        """Forget every id; gives those with a transaction that is open or about to end."""
        unfinished = list(self.unfinished)
        self.stored, self.transactions, self.unfinished = {}, {}, {}
        return unfinished

    def keeps(self, transaction: Transaction) -> bool:
        """Whether this very object is what stands for its id."""
        return self.transactions.get(transaction.transactional_id) is transaction


class TransactionRegistry(TermRegistry[TransactionTerm]):
    """The terms of this node; every id is looked up in the term of its partition."""

    def __init__(self, may_lead: Callable[[int], bool] = lambda partition: False) -> None:
        """``may_lead`` says of a partition without a term whether one may be about to begin."""
        super().__init__(TransactionTerm, may_lead)

    def find(self, transactional_id: str) -> Transaction | None:
        """What is kept for an id whose partition is owned here; None for an unknown one."""
        return self.term_of(transactional_id).find(transactional_id)

    def install(self, term: TransactionTerm, replay: TransactionReplay) -> None:
        """Own the partition of ``term`` with everything that was read of it, in one step."""
        assert not term.stored
        assert not term.transactions
        term.stored = replay.values
        self.own(term)
