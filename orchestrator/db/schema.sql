-- The database of one data directory. Times are milliseconds since the epoch.

-- Storage sessions and execution sessions are one table and one id space.
CREATE TABLE sessions (
    id            TEXT PRIMARY KEY,
    tenant        TEXT NOT NULL,
    user          TEXT NOT NULL DEFAULT '',
    entity_id     TEXT,                        -- the name the principal gave it; NULL: anonymous
    shared_kind   TEXT,                        -- 'agent' or 'skill': storage shared by a tenant's users
    shared_id     TEXT,
    shared_version TEXT,
    created_ms    INTEGER NOT NULL,
    last_used_ms  INTEGER NOT NULL,
    box           TEXT,                        -- name of the directory with its workspace and HOME; NULL: none yet
    uid           INTEGER NOT NULL DEFAULT 0,  -- owner of the files in the box
    container_id  TEXT,                        -- sandbox that serves it; NULL: stored
    python        INTEGER NOT NULL DEFAULT 0,  -- 0 never ran, 1 variables live, 2 variables lost, not yet told
    lost_reason   TEXT                         -- why, when python = 2
);
CREATE UNIQUE INDEX sessions_by_entity ON sessions (tenant, user, entity_id) WHERE entity_id IS NOT NULL;
CREATE UNIQUE INDEX sessions_by_shared ON sessions (tenant, shared_kind, shared_id, COALESCE(shared_version, ''))
    WHERE shared_kind IS NOT NULL;
CREATE INDEX sessions_by_use ON sessions (last_used_ms);

-- A file id always means the same bytes: rows are written once, after the bytes are safe on disk.
CREATE TABLE objects (
    id            TEXT PRIMARY KEY,
    session_id    TEXT NOT NULL REFERENCES sessions (id), -- its storage session
    name          TEXT NOT NULL,               -- path below the workspace
    size          INTEGER NOT NULL,
    sha256        TEXT NOT NULL,
    content_type  TEXT NOT NULL,
    read_only     INTEGER NOT NULL DEFAULT 0,
    uploaded      INTEGER NOT NULL DEFAULT 0,  -- 1: by a client, 0: made by an execution
    modified_from TEXT,                        -- the object this one continues
    superseded    INTEGER NOT NULL DEFAULT 0,  -- a newer version exists
    created_ms    INTEGER NOT NULL,
    last_used_ms  INTEGER NOT NULL
);
CREATE INDEX objects_by_session ON objects (session_id, created_ms);
CREATE INDEX objects_by_origin ON objects (modified_from) WHERE modified_from IS NOT NULL;

-- Under which other sessions an object was returned, so that it is found there too.
CREATE TABLE session_objects (
    session_id    TEXT NOT NULL,
    object_id     TEXT NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
    PRIMARY KEY (session_id, object_id)
) WITHOUT ROWID;
CREATE INDEX session_objects_by_object ON session_objects (object_id);

-- What a session's workspace looked like at the last capture, placement or return.
CREATE TABLE workspace_files (
    session_id    TEXT NOT NULL,
    path          TEXT NOT NULL,               -- below the workspace; any bytes but NUL in state 3
    object_id     TEXT,                        -- state 0, 1: what the file is; 2: what it was; 3: what it continues
    state         INTEGER NOT NULL,            -- 0 pending (to be placed), 1 present, 2 removed by session code,
                                               -- 3 present, but its bytes were not captured (the reason was told)
    inode         INTEGER NOT NULL DEFAULT 0,
    size          INTEGER NOT NULL DEFAULT 0,
    mtime_ns      INTEGER NOT NULL DEFAULT 0,
    ctime_ns      INTEGER NOT NULL DEFAULT 0,
    taken_ns      INTEGER NOT NULL DEFAULT 0,  -- wall time of the signature: a younger one than 50 ms is racy
    PRIMARY KEY (session_id, path)
) WITHOUT ROWID;
CREATE INDEX workspace_files_by_object ON workspace_files (object_id) WHERE object_id IS NOT NULL;
