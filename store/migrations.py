"""The schema, one numbered function per step, each applied in a transaction of its own by sqlite-utils.

What must not change cannot: triggers refuse updates to signals and decisions, and to the causal part of a
finished message (its text, tokens, log-probabilities, versions). Rewards are late-bound: they are new rows,
never a change to what happened. Token ids are stored as little-endian int32, log-probabilities as float32.
"""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

migrations = Migrations("mynah")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database up to date, one immediate transaction per migration.

    Immediate, so that of two processes that start at once the second waits and then finds nothing left to do.
    """
    database = Database(connection, execute_plugins=False)
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            pending = [migration.name for migration in migrations.pending(database)]
            if pending:
                migrations.apply(database, stop_before=pending[1:2])
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        if not pending:
            return


@migrations()
def m001_conversations_signals_learning(db: Database) -> None:
    """Conversations as trees, signals, learning units, adapters and their lineage, runs, decisions."""
    _conversations(db)
    _signals(db)
    _adapters(db)
    _learning(db)
    _table(db, "settings").create({"key": str, "value": str}, pk="key", not_null={"value"})
    db.execute("PRAGMA user_version = 1")


@migrations()
def m002_origins_of_imported_messages(db: Database) -> None:
    """What an imported message was called where it came from, as a hash: importing it again adds nothing.

    Goes with its message: a hash of something forgotten must not stay. ``model`` names a model we have no hash of.
    """
    db.execute(
        "CREATE TABLE origins (message TEXT PRIMARY KEY NOT NULL REFERENCES messages (id) ON DELETE CASCADE, "
        "origin TEXT NOT NULL UNIQUE, model TEXT) WITHOUT ROWID"
    )
    db.execute("PRAGMA user_version = 2")


@migrations()
def m003_events_consent_forgetting(db: Database) -> None:
    """Steps of a conversation as events, who turned which consent dial when, and requests to forget."""
    db.execute(
        """
        CREATE TABLE events (
          seq INTEGER PRIMARY KEY,
          id TEXT NOT NULL UNIQUE,
          conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
          message TEXT REFERENCES messages (id) ON DELETE CASCADE,
          kind TEXT NOT NULL,
          created TEXT NOT NULL,
          observation TEXT NOT NULL,
          harness TEXT NOT NULL,
          action TEXT NOT NULL,
          outcome TEXT NOT NULL,
          metadata TEXT NOT NULL,
          replay TEXT NOT NULL,
          error_class TEXT
        )
        """
    )
    db.execute("CREATE INDEX idx_events_conversation ON events (conversation)")
    db.execute("CREATE INDEX idx_events_message ON events (message)")
    _append_only(db, "events")
    db.execute(
        """
        CREATE TABLE consents (
          id INTEGER PRIMARY KEY,
          conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
          dial TEXT NOT NULL,
          value TEXT NOT NULL,
          actor TEXT NOT NULL,
          created TEXT NOT NULL
        )
        """
    )
    db.execute("CREATE INDEX idx_consents_conversation ON consents (conversation)")
    _append_only(db, "consents")
    db.execute(
        """
        CREATE TABLE forgettings (
          id TEXT PRIMARY KEY NOT NULL,
          scope TEXT NOT NULL,
          target TEXT,
          state TEXT NOT NULL,
          created TEXT NOT NULL,
          updated TEXT NOT NULL,
          [plan] TEXT NOT NULL,
          run TEXT,
          receipt TEXT
        )
        """
    )
    db.execute("CREATE INDEX idx_forgettings_state ON forgettings (state)")
    _indexes_for_long_histories(db)
    _unjudged(db)
    # Copies of all this that the owner had us make: whoever asks to forget something means those too.
    db.execute("CREATE TABLE backups (path TEXT PRIMARY KEY NOT NULL, created TEXT NOT NULL) WITHOUT ROWID")
    db.execute("PRAGMA user_version = 3")


@migrations()
def m004_pins_tags_drafts(db: Database) -> None:
    """What the owner sorts conversations by, and what was typed in one and not sent yet."""
    db.execute("ALTER TABLE conversations ADD COLUMN pinned TEXT")
    db.execute("ALTER TABLE conversations ADD COLUMN archived TEXT")
    db.execute("CREATE INDEX idx_conversations_shown ON conversations (pinned IS NULL, updated DESC)")
    db.execute(
        "CREATE TABLE tags (conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE, "
        "tag TEXT NOT NULL, PRIMARY KEY (conversation, tag))"
    )
    db.execute(
        "CREATE TABLE drafts (conversation TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE, "
        "text TEXT NOT NULL, updated TEXT NOT NULL)"
    )
    db.execute("PRAGMA user_version = 4")


@migrations()
def m005_items(db: Database) -> None:
    """Memories, instructions and guards: versions by topic, who switched them when, and which replies had them.

    What is forgotten stays as a row without words, so that a reply can still say that something was in its prompt.
    """
    db.execute(
        """
        CREATE TABLE items (
          seq INTEGER PRIMARY KEY,
          id TEXT NOT NULL UNIQUE,
          kind TEXT NOT NULL,
          topic TEXT NOT NULL,
          version INTEGER NOT NULL,
          state TEXT NOT NULL,
          body TEXT NOT NULL,
          conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE,
          source_message TEXT REFERENCES messages (id) ON DELETE SET NULL,
          source_start INTEGER,
          source_end INTEGER,
          confidence REAL NOT NULL,
          expires TEXT,
          created TEXT NOT NULL,
          decision TEXT,
          effect TEXT,
          embedder TEXT,
          vector BLOB,
          UNIQUE (kind, topic, version)
        )
        """
    )
    db.execute("CREATE INDEX idx_items_state ON items (state, kind)")
    db.execute("CREATE INDEX idx_items_source ON items (source_message)")
    db.execute("CREATE INDEX idx_items_conversation ON items (conversation)")
    db.execute(
        "CREATE TABLE item_changes (seq INTEGER PRIMARY KEY, "
        "item TEXT NOT NULL REFERENCES items (id) ON DELETE CASCADE, "
        "state TEXT NOT NULL, created TEXT NOT NULL, decision TEXT)"
    )
    db.execute("CREATE INDEX idx_item_changes_item ON item_changes (item)")
    _append_only(db, "item_changes")
    db.execute(
        "CREATE TABLE item_uses (item TEXT NOT NULL REFERENCES items (id) ON DELETE CASCADE, "
        "message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE, PRIMARY KEY (item, message)) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX idx_item_uses_message ON item_uses (message)")
    db.execute("PRAGMA user_version = 5")


@migrations()
def m006_full_text_index_in_parts(db: Database) -> None:
    """The full-text index in four parts, told by a conversation's id (see `store.textindex`)."""
    for event in ("insert", "delete", "update"):
        db.execute(f"DROP TRIGGER messages_fts_{event}")
    db.execute("DROP TABLE messages_fts")
    for part in range(4):
        table = f"messages_fts_{part}"
        there = "unicode(substr({}conversation, -1)) % 4 = " + str(part)
        db.execute(
            f"CREATE VIEW messages_part_{part} AS "
            f"SELECT rowid AS number, text FROM messages WHERE {there.format('')}"
        )
        db.execute(
            f"CREATE VIRTUAL TABLE {table} USING fts5(text, content='messages_part_{part}', "
            "content_rowid='number', tokenize='trigram')"
        )
        put = f"INSERT INTO {table} (rowid, text) VALUES (NEW.rowid, NEW.text);"
        take = f"INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', OLD.rowid, OLD.text);"
        for event, row, what in (
            ("insert", "NEW", put),
            ("delete", "OLD", take),
            ("update", "NEW", f"{take} {put}"),
        ):
            when = "UPDATE OF text" if event == "update" else event.upper()
            db.execute(
                f"CREATE TRIGGER {table}_{event} AFTER {when} ON messages WHEN {there.format(row + '.')} "
                f"BEGIN {what} END"
            )
        db.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")
    db.execute("PRAGMA user_version = 6")


def _indexes_for_long_histories(db: Database) -> None:
    """What the chat asks for all the time, answered without reading all there ever was.

    The trigram index holds every character but the last two of a text as the beginning of a trigram: these two are
    what a search for one or two characters needs besides (see `store.search`).
    """
    db.execute("CREATE INDEX idx_conversations_updated ON conversations (updated)")
    db.execute("CREATE INDEX idx_signals_source ON signals (source)")
    db.execute("CREATE INDEX idx_messages_last_two ON messages (substr(text, -2))")
    db.execute("CREATE INDEX idx_messages_last_one ON messages (substr(text, -1))")


def _unjudged(db: Database) -> None:
    """Replies that the owner went on from and nobody has looked at, kept by triggers.

    The supervisor asks every two seconds whether there is one. A query over all messages reads every one of them where
    none is left, or where the owner allowed none to teach.
    """
    db.execute(
        "CREATE TABLE unjudged (seq INTEGER PRIMARY KEY, "
        "message TEXT NOT NULL UNIQUE REFERENCES messages (id) ON DELETE CASCADE)"
    )
    judgeable = """
      INSERT OR IGNORE INTO unjudged (message)
      SELECT reply.id FROM messages AS reply
      JOIN messages AS question ON question.id = reply.parent AND question.role = 'user'
      JOIN conversations ON conversations.id = reply.conversation AND conversations.train = 'allow'
      WHERE reply.role = 'assistant' AND reply.status != 'failed' AND reply.error_class IS NULL
        AND NOT EXISTS (SELECT 1 FROM judged WHERE judged.message = reply.id) AND {condition}
    """
    went_on = (
        "EXISTS (SELECT 1 FROM messages AS next WHERE next.parent = reply.id AND next.role = 'user' "
        "AND next.id NOT IN (SELECT message FROM origins))"
    )
    db.execute(judgeable.format(condition=went_on) + " ORDER BY reply.rowid")
    asked_next = judgeable.format(condition="reply.id = NEW.parent")
    allowed = judgeable.format(condition=f"reply.conversation = NEW.id AND {went_on}")
    db.execute(
        "CREATE TRIGGER unjudged_asked_next AFTER INSERT ON messages "
        f"WHEN NEW.role = 'user' AND NEW.parent IS NOT NULL BEGIN {asked_next}; END"
    )
    db.execute(
        "CREATE TRIGGER unjudged_failed AFTER UPDATE OF status ON messages WHEN NEW.status = 'failed' "
        "BEGIN DELETE FROM unjudged WHERE message = NEW.id; END"
    )
    db.execute(
        "CREATE TRIGGER unjudged_looked_at AFTER INSERT ON judged "
        "BEGIN DELETE FROM unjudged WHERE message = NEW.message; END"
    )
    db.execute(
        "CREATE TRIGGER unjudged_consent AFTER UPDATE OF train ON conversations WHEN NEW.train != OLD.train BEGIN "
        "DELETE FROM unjudged WHERE message IN (SELECT id FROM messages WHERE conversation = NEW.id); "
        f"{allowed}; END"
    )


def _table(db: Database, name: str) -> Table:
    table = db.table(name)
    assert isinstance(table, Table)
    return table


def _conversations(db: Database) -> None:
    _table(db, "conversations").create(
        {
            "id": str,
            "title": str,
            "created": str,
            "updated": str,
            "source": str,
            "head": str,
            "keep_history": str,
            "feed_memory": str,
            "train": str,
        },
        pk="id",
        not_null={"title", "created", "updated", "source", "keep_history", "feed_memory", "train"},
    )
    _table(db, "messages").create(
        {
            "id": str,
            "conversation": str,
            "parent": str,
            "role": str,
            "text": str,
            "status": str,
            "created": str,
            "finished": str,
            "path_hash": str,
            "base_hash": str,
            "adapter": str,
            "scale": float,
            "sampler": str,
            "template": str,
            "context_items": str,
            "context_hash": str,
            "prompt_tokens": bytes,
            "completion_tokens": bytes,
            "logprobs": bytes,
            "finish_reason": str,
            "error_class": str,
            "error": str,
            "left_out": int,
            "usage": str,
            "timings": str,
        },
        pk="id",
        not_null={"conversation", "role", "text", "status", "created", "left_out"},
        defaults={"left_out": 0},
        foreign_keys=[("conversation", "conversations", "id"), ("parent", "messages", "id")],
    )
    messages = _table(db, "messages")
    messages.create_index(["conversation", "created"])
    messages.create_index(["parent"])
    messages.create_index(["path_hash"])
    db.execute("CREATE INDEX idx_messages_open ON messages (status) WHERE status = 'generating'")
    db.execute(
        """
        CREATE TRIGGER messages_causal_record BEFORE UPDATE OF
          conversation, parent, role, text, status, base_hash, adapter, scale, sampler, template, context_items,
          prompt_tokens, completion_tokens, logprobs, finish_reason
        ON messages WHEN OLD.status != 'generating'
        BEGIN SELECT RAISE(ABORT, 'a finished message cannot be changed'); END
        """
    )
    # Trigram: the default tokenizer finds nothing inside Chinese, Japanese or Korean text, nor `C++`.
    db.execute("CREATE VIRTUAL TABLE messages_fts USING fts5(text, content='messages', tokenize='trigram')")
    db.execute(
        """
        CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
          INSERT INTO messages_fts (rowid, text) VALUES (NEW.rowid, NEW.text);
        END
        """
    )
    db.execute(
        """
        CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages BEGIN
          INSERT INTO messages_fts (messages_fts, rowid, text) VALUES ('delete', OLD.rowid, OLD.text);
        END
        """
    )
    db.execute(
        """
        CREATE TRIGGER messages_fts_update AFTER UPDATE OF text ON messages BEGIN
          INSERT INTO messages_fts (messages_fts, rowid, text) VALUES ('delete', OLD.rowid, OLD.text);
          INSERT INTO messages_fts (rowid, text) VALUES (NEW.rowid, NEW.text);
        END
        """
    )


def _signals(db: Database) -> None:
    _table(db, "signals").create(
        {
            "id": str,
            "message": str,
            "kind": str,
            "value": float,
            "text": str,
            "source": str,
            "confidence": float,
            "created": str,
            "supersedes": str,
        },
        pk="id",
        not_null={"message", "kind", "source", "confidence", "created"},
        foreign_keys=[("message", "messages", "id"), ("supersedes", "signals", "id")],
    )
    _table(db, "signals").create_index(["message"])
    _append_only(db, "signals")


def _adapters(db: Database) -> None:
    _table(db, "adapters").create(
        {
            "id": str,
            "version": int,
            "base_hash": str,
            "parent": str,
            "state": str,
            "created": str,
            "run": str,
            "manifest": str,
            "gate": str,
            "reason": str,
        },
        pk="id",
        not_null={"version", "base_hash", "state", "created", "manifest", "gate"},
        foreign_keys=[("parent", "adapters", "id")],
    )
    db.execute("CREATE UNIQUE INDEX idx_adapters_version ON adapters (base_hash, version)")
    _table(db, "activations").create(
        {
            "id": int,
            "created": str,
            "base_hash": str,
            "adapter": str,
            "scale": float,
            "actor": str,
            "reason": str,
            "undoes": int,
        },
        pk="id",
        not_null={"created", "base_hash", "scale", "actor", "reason"},
        foreign_keys=[("adapter", "adapters", "id"), ("undoes", "activations", "id")],
    )
    _table(db, "activations").create_index(["base_hash"])
    _append_only(db, "activations")


def _learning(db: Database) -> None:
    _table(db, "units").create(
        {
            "id": str,
            "message": str,
            "conversation": str,
            "kind": str,
            "reward": float,
            "target": str,
            "hint": str,
            "weight": float,
            "state": str,
            "reason": str,
            "signals": str,
            "content_hash": str,
            "redaction": str,
            "created": str,
            "updated": str,
        },
        pk="id",
        not_null={"message", "conversation", "kind", "reward", "weight", "state", "content_hash", "created"},
        foreign_keys=[("message", "messages", "id"), ("conversation", "conversations", "id")],
    )
    db.execute("CREATE UNIQUE INDEX idx_units_message ON units (message)")
    _table(db, "units").create_index(["state"])
    _table(db, "unit_uses").create(
        {"unit": str, "adapter": str, "use": str, "content_hash": str},
        pk=("unit", "adapter"),
        not_null={"use", "content_hash"},
        foreign_keys=[("unit", "units", "id"), ("adapter", "adapters", "id")],
    )
    _table(db, "unit_uses").create_index(["adapter"])
    _table(db, "judged").create(
        {"message": str, "created": str, "verdict": str},
        pk="message",
        not_null={"created"},
        foreign_keys=[("message", "messages", "id")],
    )
    _table(db, "learning_runs").create(
        {
            "id": str,
            "trigger": str,
            "state": str,
            "outcome": str,
            "created": str,
            "started": str,
            "finished": str,
            "pid": int,
            "attempts": int,
            "fraction": float,
            "note": str,
            "result": str,
            "error": str,
        },
        pk="id",
        not_null={"trigger", "state", "created", "attempts"},
        defaults={"attempts": 0},
    )
    _table(db, "learning_runs").create_index(["state"])
    _table(db, "decisions").create(
        {
            "seq": int,
            "id": str,
            "created": str,
            "kind": str,
            "inputs": str,
            "choice": str,
            "previous": str,
            "hash": str,
        },
        pk="seq",
        not_null={"id", "created", "kind", "inputs", "choice", "previous", "hash"},
    )
    db.execute("CREATE UNIQUE INDEX idx_decisions_id ON decisions (id)")
    _append_only(db, "decisions")


def _append_only(db: Database, table: str) -> None:
    db.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
    )
