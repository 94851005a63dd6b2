// Made by scripts/generate.mjs from the server's OpenAPI document. Do not edit it.

export interface components {
    schemas: {
        /** @description A sandbox that another was forked from. */
        Ancestor: {
            /**
             * Format: uint64
             * @description When it was forked.
             */
            at_ms: number;
            id: string;
            /** @description Its name at that moment. */
            name: string;
        };
        /** @description A web app. */
        AppInfo: {
            app: string;
            /** @description How it ended, if it has ended. */
            exit?: components["schemas"]["Exit"];
            /**
             * Format: uint16
             * @description The port in the sandbox; the app gets it as `$PORT`.
             */
            guest_port?: number;
            /**
             * Format: uint16
             * @description The port on this host, at 127.0.0.1.
             */
            host_port?: number;
            /** @description The end of its log, if it has ended. */
            log?: string;
            /** @description The node of the fleet that has it; only in lists of all nodes. */
            node?: string;
            /** Format: uint32 */
            pid?: number;
            /** @description `namespace/name` of its sandbox. */
            sandbox: string;
            /** @description The app's session, which has its whole output. */
            session: string;
            /** Format: uint64 */
            started_at_ms: number;
            state: components["schemas"]["AppState"];
            type: components["schemas"]["AppType"];
            /** @description Its URL, while it is reachable. */
            url?: string;
            /** @description Requested options that this host could not provide. */
            warnings?: string[];
        };
        AppList: {
            apps: components["schemas"]["AppInfo"][];
            /** @description Nodes of the fleet that did not answer: what they have is missing here. Absent if all did. */
            unanswered?: components["schemas"]["UnansweredNode"][];
        };
        /** @description The log of an app. */
        AppLog: {
            app: string;
            /** @description The text; invalid UTF-8 is shown as U+FFFD. */
            log: string;
            session: string;
            /**
             * Format: uint64
             * @description Bytes of the whole log, including what is not shown here.
             */
            total_bytes: number;
        };
        /** @description The state of an app. */
        AppState: "running" | "starting" | "exited" | "failed";
        /** @description How an app is served. */
        AppType: ("flask" | "streamlit") | "fastapi" | "command";
        /** @description The result of unpacking an archive. */
        ArchiveUnpacked: {
            /**
             * Format: uint64
             * @description Bytes of the files in it.
             */
            bytes: number;
            /**
             * Format: uint64
             * @description Files, directories and links.
             */
            entries: number;
        };
        /** @description A file that the code offers. */
        Artifact: {
            /** Format: uint64 */
            bytes: number;
            mime: string;
            name: string;
            path: string;
            /** @description The exact bytes of the path, if it is not UTF-8. */
            path_base64?: string;
        };
        /** @description A page of artifacts. */
        ArtifactPage: {
            artifacts: components["schemas"]["KeptArtifact"][];
            /**
             * Format: uint64
             * @description The value for `after` on the next page; absent on the last page.
             */
            next?: number;
        };
        AttachSessionQuery: {
            /** Format: uint16 */
            columns?: number;
            /**
             * Format: uint64
             * @description The first byte to send; by default the last screens are sent.
             */
            from?: number;
            /** @description Send only bytes, without JSON messages. */
            plain?: boolean;
            /** @description Attach read-only. */
            read_only?: boolean;
            /**
             * Format: uint16
             * @description The size of the client's terminal.
             */
            rows?: number;
            /** @description Take the keyboard from the client that holds it. */
            take?: boolean;
        };
        /** @description A page of audit records. */
        AuditPage: {
            /**
             * Format: uint64
             * @description The value for `after`; absent when there are no more records yet.
             */
            next?: number;
            /**
             * @description The records as in the log: `seq`, `time`, `who`, `door`, `operation`, `outcome`, and further
             *     fields.
             */
            records: {
                [key: string]: unknown;
            }[];
        };
        /**
         * @description Limits on what a program and all that it starts may use. A warning names each limit that the
         *     host cannot enforce.
         */
        Bounds: {
            /**
             * Format: double
             * @description CPUs; fractions are allowed.
             */
            cpus?: number | null;
            /** Format: uint64 */
            memory_mib?: number | null;
            /** Format: uint64 */
            processes?: number | null;
        };
        /** @description A path that is not UTF-8. */
        BytesPath: {
            base64: string;
        };
        CapInfo: {
            /**
             * Format: uint64
             * @description The limit; absent if there is none.
             */
            allowed?: number;
            /**
             * @description `sandboxes`, `memory_mib`, `cpu_millis`, `disk_bytes`; `run_ms_per_day` and
             *     `output_bytes_per_day`, of a day of UTC; and `ttl_ms` of each sandbox.
             */
            cap: string;
            /** Format: uint64 */
            used: number;
        };
        /** @description The caps of every scope that the caller's sandboxes count towards. */
        CapsInfo: {
            scopes: components["schemas"]["ScopeInfo"][];
        };
        /** @description The artifacts of one run, for calls that request them. */
        Captured: {
            artifacts: components["schemas"]["KeptArtifact"][];
            /** @description What the run left that was not kept. */
            left_out: components["schemas"]["LeftOut"][];
        };
        /** @description A notebook in a fork, with the variables of one in the original. */
        CarriedNotebook: {
            /** @description The notebook of the original. */
            from: string;
            /** @description The notebook of the fork. */
            notebook: string;
            /** @description The fork. */
            sandbox: string;
        };
        CategoryName: ("image" | "video" | "audio" | "document" | "data" | "code" | "archive" | "text" | "other") | "figure";
        /** @description Why a program ended. */
        Cause: {
            /** Format: int32 */
            code: number;
            /** @constant */
            type: "exited";
        } | {
            core_dumped: boolean;
            /** Format: int32 */
            signal: number;
            /** @constant */
            type: "signaled";
        } | {
            by: string;
            /** Format: int32 */
            signal: number;
            /** @constant */
            type: "killed";
        } | {
            /** Format: uint64 */
            limit_ms: number;
            /** @constant */
            type: "timeout";
        } | {
            /** Format: uint64 */
            limit_bytes?: number;
            /** @constant */
            type: "out_of_memory";
        } | {
            /** @constant */
            type: "sandbox_stopping";
        } | {
            /**
             * Format: int32
             * @description The Linux error number.
             */
            errno: number;
            stage: components["schemas"]["Stage"];
            /** @description What the step was about: the program, the directory or the user. */
            subject: string;
            /** @constant */
            type: "spawn_failed";
        };
        /** @description What changed. */
        ChangedFile: {
            /** @description The path; invalid UTF-8 is shown as U+FFFD. */
            path: string;
            /** @description The exact bytes of the path, if it is not UTF-8. */
            path_base64?: string;
        };
        /** @description An output of a session. */
        ChannelName: ("stdout" | "stderr") | "terminal";
        CheckRequest: {
            /** @description At most 256 KiB. */
            code: string;
        };
        Checked: {
            /** @description The indentation of the next line. */
            indent: string;
            state: components["schemas"]["CodeStateName"];
        };
        /**
         * @description Bytes: `text` if they are UTF-8, otherwise `base64`; so are long ones that are mostly control
         *     characters. Exactly one of the two is present.
         */
        Chunk: {
            base64?: string;
            text?: string;
        };
        /** @description The codes of refusals. */
        Code: "invalid" | "unauthenticated" | "forbidden" | "misdirected" | "not_found" | "method_not_allowed" | "not_acceptable" | "conflict" | "idempotency_mismatch" | "gone" | "too_large" | "unsupported_media_type" | "range_not_satisfiable" | "unsupported" | "spawn_failed" | "app_failed" | "app_not_ready" | "module_missing" | "io" | "rate_limited" | "limit_reached" | "deadline_exceeded" | "request_timeout" | "start_failed" | "guest_unreachable" | "port_unreachable" | "unavailable" | "cap_exceeded" | "unknown_secret" | "secret_failed" | "pull_failed" | "unknown_workspace" | "workspace_failed" | "insufficient_storage" | "internal";
        CodeStateName: "complete" | "incomplete" | "invalid";
        /** @description A command: a line for the shell, or the program and its arguments. */
        Command: string | string[];
        /** @description A command line for `/bin/sh`, or a program and its arguments. */
        Command2: string | string[];
        /** @description An image to make from a sandbox. */
        CommitSandbox: {
            /** @description The image's name, such as `team/app:2`. */
            image: string;
        };
        /** @description One session of the log. */
        Comparison: {
            /** @description The argument vector as one shortened line. */
            command: string;
            /** @description Whether the log has its end, which has the digests. */
            ended: boolean;
            outputs: components["schemas"]["OutputComparison"][];
            session: string;
            /** Format: uint64 */
            started_at_ms: number;
        };
        /** @description Code with a cursor. */
        CompleteRequest: {
            /** @description At most 256 KiB. */
            code: string;
            /**
             * Format: uint32
             * @description Characters of the code before the cursor, in Unicode code points, as Python's `len` counts
             *     them; by default the end of the code.
             */
            cursor?: number | null;
        };
        /** @description The completions that were found. */
        CompletionsFound: {
            /** Format: uint32 */
            end: number;
            matches: string[];
            /**
             * Format: uint32
             * @description The start of the part that a match replaces, counted like the cursor.
             */
            start: number;
        };
        /** @description A file that both sides have changed. */
        Conflict: {
            /** @description Where the sandbox's is on the host; absent where the sandbox has removed it. */
            kept_as?: string;
            path: string;
        };
        /**
         * @description Bytes in JSON: exact as `text` where they are UTF-8, and as `base64` where they are not, or are long
         *     and mostly control characters.
         */
        Content: {
            text: string;
        } | {
            base64: string;
        };
        /** @description The current state of a context. */
        Context: {
            context: string;
            cwd?: string;
            /** @description The current interpreter. */
            interpreter?: components["schemas"]["Interpreter"];
            /**
             * Format: uint64
             * @description How many interpreters the context has had, including the current one.
             */
            interpreters: number;
            /** @description The language's own name. */
            language: string;
            /** @description How the last interpreter ended, until a run has reported that its variables are lost. */
            lost?: string;
            /** Format: uint64 */
            opened_at_ms: number;
            /**
             * Format: uint32
             * @description How many runs are waiting.
             */
            queued: number;
            /**
             * Format: uint64
             * @description The current run.
             */
            running?: number;
            /**
             * Format: uint64
             * @description How many runs have started.
             */
            runs: number;
            state: components["schemas"]["ContextStateName"];
            /** @description Requested options that this host could not provide. */
            warnings: string[];
        };
        /**
         * @description Limits on everything that a context starts. Warnings list the limits that the host cannot
         *     enforce.
         */
        ContextLimits: {
            /**
             * Format: uint64
             * @description Thousandths of a CPU.
             */
            cpu_millis?: number | null;
            /** Format: uint64 */
            memory_bytes?: number | null;
            /** Format: uint64 */
            processes?: number | null;
        };
        ContextList: {
            contexts: components["schemas"]["Context"][];
        };
        /** @description A run of a context. */
        ContextRun: {
            code: components["schemas"]["Digested"];
            context: string;
            /**
             * Format: uint64
             * @description Which run of its interpreter it was; absent of one that never began.
             */
            count?: number;
            /** Format: uint64 */
            cpu_us?: number;
            /** @description The first forms of what it displayed, in order. */
            displays: components["schemas"]["DisplayedForm"][];
            /** @description The kind of the exception that nothing caught. */
            error?: string;
            /** @description Whether there were more than are listed here. */
            has_more_displays: boolean;
            language: string;
            /** Format: uint64 */
            memory_bytes_peak?: number;
            /** Format: uint64 */
            run: number;
            /** @description Whether the next run finds its variables. */
            state_kept: boolean;
        };
        ContextStateName: ("starting" | "idle" | "running") | "cold" | "interrupting";
        /** @description A key to issue. */
        CreateKey: {
            /** @description A label that says who uses it. */
            name?: string | null;
            /** @description By default the namespace of the key that asks, or `default`. `*` is for all. */
            namespace?: string | null;
            /** @description It never expires, which only a key that does not either may ask for. */
            never_expires?: boolean;
            /** @description The default is `run`. */
            scope?: components["schemas"]["ScopeName"];
            /**
             * Format: uint64
             * @description How long it is good for; by default 30 days, or as long as the key that asks if that is less.
             */
            ttl_ms?: number | null;
        };
        /** @description A port to make a link to. */
        CreatePreview: {
            /**
             * Format: uint16
             * @description The port in the sandbox. Nothing needs to listen there yet.
             */
            port: number;
            /**
             * Format: uint64
             * @description How long the link is good for; by default an hour, at most 30 days.
             */
            ttl_ms?: number | null;
        };
        /** @description A sandbox to make. Only its name is required. */
        CreateSandbox: {
            /**
             * Format: double
             * @description CPUs; fractions are allowed, and 0 asks for the smallest share.
             */
            cpus?: number | null;
            /**
             * @description Whether what its programs write outlives the host, in a fleet. With `async` it is in the fleet's log a
             *     moment after it was written; with `sync` nobody sees it before. Contexts are refused in such a sandbox.
             */
            durability?: components["schemas"]["Durability"] | null;
            /**
             * @description What it may reach. The default is the server's setting, which is nothing unless its operator
             *     changed it; an empty list means nothing. `example.org` is that host at ports 80 and 443,
             *     `example.org:5432` that host at that port, `*.example.org` every host below it, `public`
             *     every host of the internet, `@pypi`, `@npm`, `@crates` or `@debian` the hosts of a registry. Rules that the machine kind cannot enforce are refused.
             */
            egress?: string[] | null;
            /** @description The environment of every program in it. The values are never shown. */
            env?: {
                [key: string]: string;
            };
            hostname?: string | null;
            /**
             * Format: uint64
             * @description How long it may be idle before it ends or is paused.
             */
            idle_ttl_ms?: number | null;
            /**
             * @description An image in the server's configuration, or in this host's store by name or digest. With the
             *     scope `admin` also a directory of the host.
             */
            image?: string | null;
            /**
             * Format: uint64
             * @description How long its record and logs are kept after it has stopped.
             */
            keep_stopped_ms?: number | null;
            labels?: {
                [key: string]: string;
            };
            /**
             * @description The machine kind; the default is set by the server's configuration. `process` is not a
             *     security boundary, and `external` is not allowed here.
             */
            machine?: components["schemas"]["Machine"] | null;
            /** Format: uint64 */
            memory_mib?: number | null;
            name: string;
            /** @description The namespace; by default the key's, or `default`. */
            namespace?: string | null;
            /**
             * @description In a fleet, labels that the node must have which makes it. Each node has those of its configuration, and
             *     `node` with its name.
             */
            node_labels?: {
                [key: string]: string;
            };
            /**
             * @description What happens then: it ends by default, or is paused until the next request. A request that finds
             *     it paused waits until it runs, and the header `burrow-woke-ms` of the answer says how long.
             */
            on_idle?: components["schemas"]["OnIdle"] | null;
            /**
             * @description What becomes of it when it is lost with its node of a fleet. `restart` makes it again at another node, as it was
             *     asked for; `restore` does so from its snapshot that was exported to a bucket last. The new one has the same name and
             *     another id. What it was asked for, with its environment, is kept in the fleet's store meanwhile.
             */
            on_lost?: components["schemas"]["OnLost"] | null;
            /**
             * @description Packages to install first: on the image, which must be one of this host's store, or over the
             *     host's root, where the sandbox has that and the server asks for no keys. They are kept: the next
             *     sandbox with the same packages starts at once.
             */
            packages?: components["schemas"]["PackageList"] | null;
            /**
             * @description When the image is pulled from its registry: `never`, `missing` or `always`. The default is
             *     the server's policy; only the scope `admin` may ask for more.
             */
            pull?: components["schemas"]["PullPolicy"] | null;
            /**
             * @description What is recorded of its sessions: `off` that they began and how they ended, `on` also what they wrote, `input`
             *     also what was typed into them and written to their stdin, passwords included. The default is the server's
             *     setting, which is `on` unless its operator changed it.
             */
            record?: components["schemas"]["RecordPolicy"] | null;
            /**
             * Format: uint64
             * @description The size of its private writable layer; at most 64 GiB for a virtual machine.
             */
            scratch_bytes?: number | null;
            /**
             * @description Names of secrets in the server's configuration; their values become environment variables.
             *     Secrets that are unknown or not for this namespace are refused.
             */
            secrets?: string[];
            /**
             * @description The snapshot of its namespace to start from, instead of booting. The snapshot sets the
             *     machine, image, memory, CPUs and writable layer.
             */
            snapshot?: string | null;
            /**
             * @description The template of its namespace to make it of, as `name` or `name:tag`, instead of an image. The answer
             *     comes when its ready command has exited with 0. Options given here take precedence over the template's.
             */
            template?: string | null;
            /**
             * Format: uint64
             * @description The time from its creation until it ends, even if it is busy.
             */
            ttl_ms?: number | null;
            /**
             * @description The default user of programs and interpreters: `name`, `name:group`, `uid` or `uid:gid`. The
             *     default is the image's user.
             */
            user?: string | null;
            /** @description Volumes of the namespace, each as `NAME:/path`. Only a process machine can mount them. */
            volumes?: string[];
            /** @description The default working directory of programs: by default the workspace, the image's, or `/sandbox`. */
            workdir?: string | null;
            /**
             * @description The workspace, copied to `/workspace`; changes are copied back. The name of a workspace in
             *     the server's configuration, or, with the scope `admin`, a directory of the host.
             */
            workspace?: string | null;
        };
        /** @description A volume to make. */
        CreateVolume: {
            name: string;
            /** @description The namespace; by default the key's, or `default`. */
            namespace?: string | null;
        };
        /** @description A key, with what opens the server. */
        CreatedKey: {
            info: components["schemas"]["KeyInfo"];
            /** @description The key. */
            key: string;
        };
        /** @description A link, with what opens it. */
        CreatedPreview: {
            created_at: string;
            expires_at: string;
            /** @description Whether the port has a host name of its own, which browsers need. */
            has_host_name: boolean;
            id: string;
            /** Format: uint16 */
            port: number;
            /** @description The link. Without a host name for the port it is for programs alone. */
            url: string;
        };
        /** @description Whose egress decisions a receipt has. */
        DecidedFor: "sandbox";
        Decision: {
            facts: {
                [key: string]: unknown;
            };
            /** @description `egress.name` or `egress.connection`. */
            operation: string;
            outcome: components["schemas"]["Outcome"];
            time: string;
        };
        /** @description Egress decisions of the sandbox between the start and the end of the session or the run, from the audit log. */
        Decisions: {
            /** Format: uint64 */
            allowed: number;
            /** @description For whom they were made; absent in receipts of earlier versions, of which `sandbox` is true as well. */
            decided_for?: components["schemas"]["DecidedFor"];
            /** @description Whether the log had more than is listed here. */
            has_more: boolean;
            /** @description The first of them. */
            listed: components["schemas"]["Decision"][];
            /** Format: uint64 */
            refused: number;
        };
        Dependent: {
            name: string;
            uses: string[];
        };
        /** @description Length and SHA-256 of something. */
        Digested: {
            /** Format: uint64 */
            bytes: number;
            sha256: string;
        };
        /** @description A display, in every form that it offers. */
        Display: {
            /** @description The forms: from MIME type to content. */
            data: {
                [key: string]: components["schemas"]["Content"];
            };
            /** @description The id that later updates of this display use. */
            id?: string;
            metadata?: {
                [key: string]: unknown;
            };
            role: components["schemas"]["DisplayRoleName"];
        };
        DisplayRoleName: "value" | "shown" | "update";
        DisplayedForm: {
            /** Format: uint64 */
            bytes: number;
            mime: string;
            sha256: string;
        };
        /** @description Whether the output of a sandbox's programs outlives its host. */
        Durability: "off" | "async" | "sync";
        /** @description How a run ended. */
        End: {
            /** @description Whether compiled code was reused, if the language reports it. */
            cached?: boolean;
            /** @description Why the interpreter died. */
            cause?: components["schemas"]["Cause"];
            /**
             * Format: uint64
             * @description CPU time of the interpreter with all its threads and, if it reports them, the children that
             *     it waited for.
             */
            cpu_us?: number;
            /** Format: uint64 */
            duration_us: number;
            /**
             * Format: int32
             * @description The code that the code asked to exit with, or the interpreter's exit code as a shell reports
             *     it.
             */
            exit_code?: number;
            /** Format: uint64 */
            memory_bytes_peak?: number;
            /** @description More about the status, in words. */
            reason?: string;
            /** @description The last step that an interrupt or a deadline needed. */
            rung?: components["schemas"]["RungName"];
            /** @description Whether the next run finds the variables of this one. */
            state_kept: boolean;
            status: components["schemas"]["RunStatus"];
            /** Format: uint64 */
            stderr_bytes: number;
            /**
             * Format: uint64
             * @description Bytes that the run wrote in total.
             */
            stdout_bytes: number;
            /**
             * Format: uint64
             * @description The deadline that was exceeded.
             */
            timeout_ms?: number;
        };
        /** @description Something that has happened to a sandbox. Clients must ignore unknown kinds and fields. */
        EventInfo: {
            /**
             * Format: uint64
             * @description When it happened, or was found, in milliseconds since 1970.
             */
            at_ms: number;
            /** @description Why it happened, as text for people. */
            cause?: string;
            /**
             * Format: int32
             * @description Of `command_ended`: the exit code of a program that returned one.
             */
            code?: number;
            /** @description Of `run_begun` and `run_ended`. */
            context?: string;
            /**
             * Format: uint64
             * @description Of `events_lost`: how many.
             */
            count?: number;
            /**
             * Format: uint64
             * @description Of `command_ended` and `run_ended`: CPU time, with that of the children that it has waited for.
             */
            cpu_us?: number;
            /**
             * Format: uint64
             * @description Of `command_ended` and `run_ended`.
             */
            duration_us?: number;
            /**
             * Format: uint64
             * @description Of `gap`: the first offset that is missing, and the one after the last that is.
             */
            from?: number;
            /** @description The sandbox's own id: names are used again. */
            id?: string;
            /** Format: uint64 */
            idle_ttl_ms?: number;
            /** @description Of `created`, as requested; of `committed`, the digest. */
            image?: string;
            kind: components["schemas"]["EventKind"];
            /** @description Of `created`. */
            labels?: {
                [key: string]: string;
            };
            /**
             * @description Whether the bridge that it happened to was killed before it could record it: then `at_ms` is when
             *     the next one found it.
             */
            late?: boolean;
            /**
             * Format: uint64
             * @description Of `out_of_memory`: how much memory there was, if that is known.
             */
            limit_bytes?: number;
            /** @description Of `created`: the kind of its machine. */
            machine?: string;
            /**
             * Format: uint64
             * @description Of `command_ended` and `run_ended`: the most memory at once.
             */
            memory_bytes_peak?: number;
            namespace: string;
            /** @description The node of the fleet that it happened at, which counts its own offsets; only in events of all nodes. */
            node?: string;
            /**
             * Format: uint64
             * @description Its number in the namespace; each is greater than the one before. A client that was
             *     disconnected continues with `since` one greater. Of a gap, the number of the last event that is
             *     missing.
             */
            offset: number;
            /** @description Of `paused`: its memory was written to disk and freed. */
            on_disk?: boolean;
            /**
             * Format: uint64
             * @description Of `command_ended`: from block devices.
             */
            read_bytes?: number;
            /**
             * @description Of `paused`: `asked`, `idle` or `lease`. Of `resumed`: `request`, `asked`, `lease` or `found`. Of `exited`: `asked`, `killed`, `ended` (by itself), `expired_idle`, `expired_age`,
             *     `expired_run_time`, `expired_output`, or `bridge_away`. Of `command_ended` and `run_ended`: how it ended.
             */
            reason?: string;
            /**
             * Format: uint64
             * @description Of `run_begun` and `run_ended`: the number of the run in its context.
             */
            run?: number;
            /** @description The sandbox; absent if it is about the stream itself. */
            sandbox?: string;
            /**
             * @description Of `out_of_memory`: the session that was killed; absent if the machine was. Of `command_begun` and
             *     `command_ended`.
             */
            session?: string;
            /** @description Of `snapshotted`: the name of the snapshot. */
            snapshot?: string;
            /** Format: uint64 */
            to?: number;
            /**
             * Format: uint64
             * @description Of `changed`; absent without a limit.
             */
            ttl_ms?: number;
            /**
             * Format: uint64
             * @description Of `command_ended`: to block devices.
             */
            written_bytes?: number;
        };
        /**
         * @description A kind of event:
         *
         *     - `created`: Its name is taken, and its machine is being made.
         *     - `ready`: Its agent has answered: it runs.
         *     - `failed`: It could not be made, and nothing is left of it.
         *     - `paused`: Its machine is paused.
         *     - `resumed`: Its machine goes on after a pause.
         *     - `snapshotted`: A snapshot of it was taken.
         *     - `committed`: An image was made of its files.
         *     - `forked`: Copies were made of it, by these names.
         *     - `changed`: Its times to live were changed, or, with a `cause`, what it may reach. An absent time has no limit.
         *     - `out_of_memory`: The kernel killed a session or the machine because its memory was used up.
         *     - `command_begun`: A program was started in it. Only with `programs` in `[events]`.
         *     - `command_ended`: A program has ended. Only with `programs` in `[events]`.
         *     - `run_begun`: Code was given to a context, and may wait for other runs. Only with `programs` in `[events]`.
         *     - `run_ended`: A run of code has ended. Only with `programs` in `[events]`.
         *     - `exited`: Its machine is gone. Its record and logs are kept.
         *     - `lost`: Its agent no longer answers. Its machine may still run.
         *     - `damaged`: Its record on disk cannot be read.
         *     - `removed`: It is gone, with its record and logs, and its name is free.
         *     - `events_lost`: So many events of this namespace could not be recorded, because the disk was full or too slow.
         *     - `gap`: The events from one offset up to another are no longer kept. It is made for the reader who asks for them.
         *     - `unanswered`: In events of all nodes of a fleet: a node does not answer. Its events come when it does.
         * @enum {string}
         */
        EventKind: "created" | "ready" | "failed" | "paused" | "resumed" | "snapshotted" | "committed" | "forked" | "changed" | "out_of_memory" | "command_begun" | "command_ended" | "run_begun" | "run_ended" | "exited" | "lost" | "damaged" | "removed" | "events_lost" | "gap" | "unanswered";
        /** @description A page of events. */
        EventPage: {
            events: components["schemas"]["EventInfo"][];
            /**
             * Format: uint64
             * @description The value of `since` for the next page, which may have no events yet; absent in a namespace in
             *     which nothing has happened, and on a page of all nodes.
             */
            next?: number;
            /** @description On a page of all nodes: the value of `resume` for the next page. */
            resume?: string;
            /** @description Nodes of the fleet that did not answer: their events are missing here. Absent if all did. */
            unanswered?: components["schemas"]["UnansweredNode"][];
        };
        /** @description Why a snapshot is removed. */
        Excess: "age" | "count" | "bytes" | "total_count" | "total_bytes";
        /** @description A program to run. */
        ExecCommand: {
            /** @description The program and its arguments. */
            argv: string[];
            /**
             * @description Keep new and changed files as artifacts: those in its working directory, and those
             *     in `/artifacts` or the directory in its variable `BURROW_ARTIFACTS_DIR`.
             */
            artifacts?: boolean;
            /** @description The working directory; the sandbox's own by default. */
            cwd?: string | null;
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            limits?: components["schemas"]["Bounds"];
            on_disconnect?: components["schemas"]["OnDisconnect"];
            /**
             * Format: uint64
             * @description How many bytes of each output a result keeps, from the beginning; 8 MiB by default.
             */
            output_bytes_max?: number | null;
            /** @description A name for its session; a random name by default. */
            session?: string | null;
            /** @description Its whole input; empty by default. */
            stdin?: components["schemas"]["Content"] | null;
            /**
             * Format: uint64
             * @description The time from its start until it is killed with all that it started.
             */
            timeout_ms?: number | null;
            /** @description `name`, `name:group`, `uid` or `uid:gid`. */
            user?: string | null;
        };
        /** @description The events of a program. `exited` and `problem` come last. */
        ExecEvent: {
            /** Format: uint32 */
            pid: number;
            session: string;
            /** @constant */
            type: "started";
            /** @description Requested options that this host could not provide. */
            warnings: string[];
        } | ({
            /**
             * Format: uint64
             * @description The offset in the output where it begins, in bytes.
             */
            offset: number;
            /** @constant */
            type: "stdout";
        } & ({
            text: string;
        } | {
            base64: string;
        })) | ({
            /** Format: uint64 */
            offset: number;
            /** @constant */
            type: "stderr";
        } & ({
            text: string;
        } | {
            base64: string;
        })) | {
            channel: components["schemas"]["ChannelName"];
            /** Format: uint64 */
            from: number;
            /** Format: uint64 */
            to: number;
            /** @constant */
            type: "gap";
        } | {
            captured: components["schemas"]["Captured"];
            /** @constant */
            type: "artifacts";
        } | {
            exit: components["schemas"]["Exit"];
            /** @constant */
            type: "exited";
        } | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "refused";
        } | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "problem";
        };
        /** @description The output of a program and how it ended. */
        ExecResult: {
            /** @description With `artifacts`: the artifacts that were captured. */
            captured?: components["schemas"]["Captured"];
            cause: components["schemas"]["Cause"];
            /**
             * Format: uint64
             * @description Its duration by the guest's monotonic clock.
             */
            duration_us: number;
            /**
             * Format: int32
             * @description The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
             *     a timeout.
             */
            exit_code: number;
            /** @description Its processes that still run; only the first few are named. */
            left_behind: components["schemas"]["Survivor"][];
            /** Format: uint32 */
            left_behind_count: number;
            /**
             * Format: uint64
             * @description Bytes that were lost before they could be read, because the log of an already existing
             *     session is full.
             */
            missing_bytes?: number;
            session: string;
            stderr: string;
            stderr_base64?: string;
            /** @description The output as text; invalid UTF-8 is shown as U+FFFD. */
            stdout: string;
            /** @description The exact bytes, if they are not valid UTF-8. */
            stdout_base64?: string;
            /** @description Whether it ended by itself with code 0. */
            success: boolean;
            /** @description Whether output was cut at `output_bytes_max`. */
            truncated: boolean;
            usage: components["schemas"]["Usage"];
            /** @description Requested options that this host could not provide. */
            warnings: string[];
        };
        /** @description The end of a program. */
        Exit: {
            cause: components["schemas"]["Cause"];
            /**
             * Format: uint64
             * @description Its duration by the guest's monotonic clock.
             */
            duration_us: number;
            /** Format: uint64 */
            ended_at_ms: number;
            /**
             * Format: int32
             * @description The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
             *     a timeout.
             */
            exit_code: number;
            /** @description Its processes that still run; only the first few are named. */
            left_behind: components["schemas"]["Survivor"][];
            /** Format: uint32 */
            left_behind_count: number;
            /**
             * Format: uint64
             * @description By the guest's clock, milliseconds since 1970.
             */
            started_at_ms: number;
            /** @description Whether it ended by itself with code 0. */
            success: boolean;
            usage: components["schemas"]["Usage"];
        };
        /** @description An object to write. */
        ExportToBucket: {
            /** @description `s3://BUCKET/KEY`. */
            to: string;
        };
        /** @description An object that was written. */
        Exported: {
            /**
             * Format: uint64
             * @description Its size.
             */
            bytes: number;
            to: string;
        };
        /** @description What to change of a sandbox. Fields that are left out stay; a time of 0 removes the limit. */
        ExtendSandbox: {
            /** @description The egress rules, instead of those that it has; an empty list allows nothing. */
            egress?: string[] | null;
            /** Format: uint64 */
            idle_ttl_ms?: number | null;
            /**
             * Format: uint64
             * @description The time to live from now on.
             */
            ttl_ms?: number | null;
        };
        /** @description A change. Paths are relative to the watched path, which itself is the empty path. */
        FileChange: ({
            /** @constant */
            type: "created";
        } & components["schemas"]["ChangedFile"]) | ({
            /** @constant */
            type: "modified";
        } & components["schemas"]["ChangedFile"]) | ({
            /** @constant */
            type: "attributes";
        } & components["schemas"]["ChangedFile"]) | ({
            /** @constant */
            type: "removed";
        } & components["schemas"]["ChangedFile"]) | ({
            /** @constant */
            type: "moved";
        } & components["schemas"]["MovedFile"]) | {
            /** @constant */
            type: "overflow";
        } | {
            /** @constant */
            type: "ended";
        } | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "failed";
        };
        /** @description What is at a path. */
        FileEntry: {
            /** Format: uint64 */
            bytes: number;
            /** Format: uint32 */
            gid: number;
            kind: components["schemas"]["Kind"];
            /**
             * Format: int64
             * @description When its content was last changed, in milliseconds since 1970.
             */
            modified_ms: number;
            /** @description The last component of its path; invalid UTF-8 is shown as U+FFFD. */
            name: string;
            /** @description The exact bytes of the name, if it is not UTF-8. */
            name_base64?: string;
            /** @description Octal, with setuid, setgid and sticky. */
            permissions: string;
            /** @description The target of a symlink; invalid UTF-8 is shown as U+FFFD. */
            target?: string;
            /** @description The exact bytes of the target, if it is not UTF-8. */
            target_base64?: string;
            /** Format: uint32 */
            uid: number;
        };
        /** @description A page of a directory. */
        FilePage: {
            entries: components["schemas"]["FileEntry"][];
            /** @description The value for `after`; absent on the last page. */
            next?: string;
        };
        /** @description A path in JSON. */
        FilePath: string | components["schemas"]["BytesPath"];
        /** @description The result of a write. */
        FileWritten: {
            /**
             * Format: uint64
             * @description Bytes of this body.
             */
            bytes: number;
        };
        /** @description The result of a comparison. */
        Finding: "equal" | "partial" | "damaged" | "differs" | "unknown";
        FollowMetricsQuery: {
            /**
             * Format: uint64
             * @description The number of the last known sample, 0 for none. By default only the newest sample is
             *     returned.
             */
            since?: number;
        };
        /** @description The sandbox that another follows, under the same name. */
        Followed: {
            /** @description The object that its files and memory came from. */
            exported?: string | null;
            /** @description Its id. */
            id: string;
            /** @description Its life in the fleet. */
            incarnation: string;
            /** @description The node that it was lost with. */
            node: string;
        };
        ForgetRequest: {
            names: string[];
        };
        /** @description What was carried into each fork, and what was not. */
        ForkReport: {
            /**
             * Format: uint64
             * @description Bytes of these files.
             */
            bytes: number;
            /**
             * Format: uint64
             * @description Files and directories that were carried, removals included. 0 where its disk was carried as a whole.
             */
            entries: number;
            /** @description Whether its programs were frozen while their files were read. */
            frozen: boolean;
            /** @description What was not carried. */
            left: components["schemas"]["LeftBehind"];
            /**
             * @description Whether its memory was carried, with everything that runs in it. If not, files were, and what is in
             *     `left` was not.
             */
            memory: boolean;
            /** @description Notebooks whose variables were carried. */
            notebooks?: components["schemas"]["CarriedNotebook"][];
        };
        /** @description Copies to make. */
        ForkSandbox: {
            /**
             * Format: uint64
             * @description How many; 1 by default. Left out with `names`.
             */
            count?: number;
            /** @description Their names. By default they are those of the sandbox with the first free numbers, as `web-1`. */
            names?: string[];
            /**
             * Format: uint64
             * @description Their time to live from now on; by default that of the sandbox.
             */
            ttl_ms?: number;
        };
        /** @description The copies, in the order of their names or numbers. */
        Forks: {
            forks: components["schemas"]["Sandbox"][];
            report: components["schemas"]["ForkReport"];
        };
        /** @description A port to forward. */
        ForwardPort: {
            /**
             * @description A loopback address of this host. Access from elsewhere needs a proxy that authenticates its
             *     clients.
             */
            host_address?: components["schemas"]["HostAddress"];
            /**
             * Format: uint16
             * @description The port on this host; 0 takes any free port. Without the scope `admin`, one of the server's
             *     range, `[forwards]` of its configuration. The default is `0`.
             */
            host_port?: number;
            /**
             * Format: uint16
             * @description The port in the sandbox, at 127.0.0.1.
             */
            port: number;
        };
        /** @description A forwarded port. */
        ForwardedPort: {
            /**
             * Format: uint64
             * @description How many connections are open.
             */
            connections: number;
            host_address: string;
            /**
             * Format: uint16
             * @description The port on this host.
             */
            host_port: number;
            /**
             * Format: uint16
             * @description The port in the sandbox.
             */
            port: number;
            /** @description The URL for a browser, if the port speaks HTTP. */
            url: string;
        };
        /** @description The forwarded ports of a sandbox. */
        ForwardedPorts: {
            /** @description Ordered by their ports on this host. */
            ports: components["schemas"]["ForwardedPort"][];
        };
        Frame: {
            file: string;
            function: string;
            /** Format: uint32 */
            line: number;
            /** @description The text of the line. */
            source: string;
        };
        GetCapsQuery: {
            /** @description The namespace; by default the key's, or `default`. */
            namespace?: string;
        };
        GetMetricsQuery: {
            /**
             * Format: uint64
             * @description The beginning of the history, in milliseconds since 1970; by default an hour before its end.
             */
            from?: number;
            /**
             * Format: uint64
             * @description The number of the last known sample, 0 for none. By default only the newest sample is
             *     returned. Not with the other parameters.
             */
            since?: number;
            /**
             * Format: uint64
             * @description The length of a point in milliseconds. By default one with which there are at most 1,000 points; there
             *     may be 4,000.
             */
            step?: number;
            /**
             * Format: uint64
             * @description Its end; by default now.
             */
            to?: number;
        };
        GetRunReceiptQuery: {
            /**
             * Format: uint64
             * @description Its number; the last that has ended by default.
             */
            run?: number;
        };
        GetUsageQuery: {
            /** @description The sums of all nodes of the fleet, instead of the part of the one that is asked. */
            all_nodes?: boolean;
            /**
             * Format: uint64
             * @description Milliseconds since 1970.
             */
            from?: number;
            /** @description The namespace; by default all that the key covers. */
            namespace?: string;
            /** @description Also the cost of programs, runs of contexts and apps, by day and name. */
            programs?: boolean;
            /**
             * Format: uint64
             * @description Milliseconds since 1970; by default now.
             */
            to?: number;
        };
        /** @description How long each step of an interrupt may take before the next step; 2 s by default. */
        Grace: {
            /**
             * Format: uint64
             * @description An interrupt that code cannot catch. After it, the interpreter is killed.
             */
            firm_ms?: number | null;
            /**
             * Format: uint64
             * @description An interrupt, like ctrl-c.
             */
            polite_ms?: number | null;
        };
        /** @description The server's health. */
        Health: {
            /** @description Always `ok`; a server that is not healthy does not answer. */
            status: string;
            version: string;
        };
        History: {
            runs: components["schemas"]["PastRun"][];
        };
        HistoryQuery: {
            /** @description Only runs that failed. */
            failed?: boolean;
            /**
             * Format: uint64
             * @description The maximum number of runs, up to 1000; 100 by default.
             */
            limit?: number | null;
            namespace?: string;
            /**
             * Format: uint64
             * @description Only runs that began at this time or later.
             */
            since_ms?: number | null;
        };
        /**
         * @description Where a forwarded port listens.
         * @enum {string}
         */
        HostAddress: "127.0.0.1" | "::1";
        /** @description An image. */
        Image: {
            /** Format: uint64 */
            added_at_ms: number;
            /** @description The default command. */
            command: string[];
            digest: string;
            /** Format: uint64 */
            layers: number;
            /** @description Full names, with their registries. */
            names: string[];
            /**
             * Format: uint64
             * @description The size of its layers in the store.
             */
            size_bytes: number;
            user?: string;
            /** @description The default working directory of programs. */
            workdir?: string;
        };
        /** @description All images. */
        ImageList: {
            images: components["schemas"]["Image"][];
        };
        /** @description An object to read. */
        ImportFromBucket: {
            /** @description `s3://BUCKET/KEY`. */
            from: string;
        };
        /** @description The notebook's part of a run's result. */
        InNotebook: {
            notebook: string;
            /**
             * Format: uint64
             * @description The number of the run in the notebook, from 1.
             */
            number: number;
            /** @description What was restored before the run; present if the interpreter was new. */
            reopened?: components["schemas"]["Reopened"];
        };
        /** @description The answer to an `input_request`. */
        InputAnswer: {
            /** @description The line, with or without its newline; without it, the input ends. */
            line?: string | null;
            /** Format: uint64 */
            request: number;
            /** Format: uint64 */
            run: number;
        };
        /** @description What one writer has sent. */
        InputPart: {
            /** Format: uint64 */
            bytes: number;
            /** @description Whether the input was closed after it. */
            closed: boolean;
            /**
             * Format: uint64
             * @description Where the part begins in the input; absent if the agent has not said that.
             */
            offset?: number;
            sha256: string;
            /** @description When the writer ended. */
            time: string;
        };
        /** @description The result of sending input. */
        InputTaken: {
            /** @description Whether the program has received all of the body. */
            complete: boolean;
            /**
             * Format: uint64
             * @description The input offset now.
             */
            offset: number;
        };
        Interpreter: {
            /** Format: uint32 */
            pid: number;
            program: string;
            /** @description Its version, such as `3.11.7`. */
            version: string;
        };
        /** @description Which run to interrupt. */
        InterruptRequest: {
            grace?: components["schemas"]["Grace"];
            /**
             * Format: uint64
             * @description The number of the run; by default the current or the next one.
             */
            run?: number | null;
        };
        /** @description The run that is being interrupted. */
        Interrupted: {
            /**
             * Format: uint64
             * @description Its number; absent if there was no run.
             */
            run?: number;
        };
        /** @description A file to keep. */
        KeepArtifact: {
            path: components["schemas"]["FilePath"];
        };
        /** @description An artifact: something kept from a run. */
        KeptArtifact: {
            category: components["schemas"]["CategoryName"];
            /** Format: uint64 */
            created_ms: number;
            /** @description `sha256:` and hexadecimal digits. */
            digest: string;
            id: string;
            /** @description A name for people; it need not be unique. */
            name: string;
            namespace: string;
            notebook?: string;
            /** @description Its path in the sandbox; absent for displays. */
            path?: string;
            /** Format: uint64 */
            run?: number;
            sandbox: string;
            /**
             * Format: uint64
             * @description Its size in bytes.
             */
            size: number;
            /** @description Its MIME type, found from its first bytes, or else from its name. */
            type: string;
        };
        KeptName: {
            /** Format: uint64 */
            bytes: number;
            /** @description Its type, as the language names it. */
            kind: string;
            name: string;
        };
        /** @description A key, without what opens anything. */
        KeyInfo: {
            created_at: string;
            /** @description Absent of a key that never expires. */
            expires_at?: string;
            id: string;
            /** @description The id of the key that has issued it; absent for the operator's own. */
            issued_by?: string;
            /** @description Its label. */
            name?: string;
            /** @description A namespace, or `*` for all. */
            namespace: string;
            /** @description The greatest of its scopes. */
            scope: components["schemas"]["ScopeName"];
            /**
             * Format: uint64
             * @description How many SSH keys stand for it. The default is `0`.
             */
            ssh_keys?: number;
            state: components["schemas"]["KeyState"];
        };
        /** @description The keys of this server. */
        KeyList: {
            keys: components["schemas"]["KeyInfo"][];
        };
        /** @description Whether a key is still good. */
        KeyState: ("valid" | "expired" | "revoked") | "dropped";
        /** @enum {string} */
        Kind: "file" | "directory" | "symlink" | "fifo" | "socket" | "block_device" | "char_device";
        /** @description Output that came after the end of its run. */
        Late: {
            base64?: string;
            channel: components["schemas"]["RunChannel"];
            /**
             * Format: uint64
             * @description Bytes before these that were dropped.
             */
            dropped: number;
            /**
             * Format: uint64
             * @description The run that started the source of this output, if it is known.
             */
            of?: number;
            text?: string;
        };
        /** @description What of a sandbox its forks do not have. */
        LeftBehind: {
            /** @description Contexts whose interpreters and variables were not carried. */
            contexts?: string[];
            /** @description Sessions that went on in the original alone, each with its command. */
            sessions?: string[];
            /** @description The workspace whose changes go back from the original alone. */
            workspace?: string | null;
        };
        /** @description Something that did not become an artifact. */
        LeftOut: {
            /** @description Its path or its name. */
            path: string;
            /** @description The reason in words. */
            reason: string;
        };
        /** @description The limits of the sandbox; absent where there was none. */
        Limits: {
            /** Format: uint32 */
            cpu_millis?: number;
            /** Format: uint64 */
            memory_mib?: number;
            /** Format: uint64 */
            scratch_bytes: number;
        };
        ListAllAppsQuery: {
            /** @description Those of all nodes of the fleet, instead of the one that is asked. */
            all_nodes?: boolean;
        };
        ListArtifactsQuery: {
            /**
             * Format: uint64
             * @description `next` of the previous page.
             */
            after?: number;
            category?: components["schemas"]["CategoryName"];
            /** Format: uint64 */
            limit?: number;
            namespace?: string;
            notebook?: string;
            /** Format: uint64 */
            run?: number;
            sandbox?: string;
            /**
             * Format: uint64
             * @description Only artifacts made at this time or later, in milliseconds since 1970.
             */
            since_ms?: number;
        };
        ListAuditQuery: {
            /**
             * Format: uint64
             * @description `next` of the previous page.
             */
            after?: number;
            /**
             * Format: uint16
             * @description The maximum number of entries.
             */
            limit?: number;
            namespace?: string;
            operation?: string;
            outcome?: components["schemas"]["OutcomeName"];
            /** @description A sandbox's name or id. */
            sandbox?: string;
            /**
             * Format: uint64
             * @description Milliseconds since 1970.
             */
            since_ms?: number;
            /** Format: uint64 */
            until_ms?: number;
            /** @description A key's id or label, a user's name or number, or `key`, `user`, `local`, `anybody`, `bridge`. */
            who?: string;
        };
        ListEventsQuery: {
            /** @description Those of all nodes of the fleet, instead of the one that is asked. */
            all_nodes?: boolean;
            /** @description Continue with new events. */
            follow?: boolean;
            /** @description Kinds; any of them matches. `gap`, `events_lost` and `unanswered` always do. */
            kind?: components["schemas"]["EventKind"][];
            /**
             * Format: uint16
             * @description Events per page; 100 by default.
             */
            limit?: number;
            /** @description The namespace; by default the key's, or `default`. */
            namespace?: string;
            /**
             * @description With `all_nodes`: `resume` of the previous page. After a stream, for each node the greatest `offset` and one, as in
             *     `n1:121,n2:89`. A node that it does not name begins at `since_ms`, or at its oldest event.
             */
            resume?: string;
            /** @description Names or ids of sandboxes; any of them matches. */
            sandbox?: string[];
            /**
             * Format: uint64
             * @description The first offset to read; by default that of the oldest event that is kept.
             */
            since?: number;
            /**
             * Format: uint64
             * @description Only events of this time or later, in milliseconds since 1970. Not with `since`.
             */
            since_ms?: number;
        };
        ListFilesQuery: {
            /** @description `next` of the previous page. */
            after?: string;
            /**
             * Format: uint16
             * @description The maximum number of entries.
             */
            limit?: number;
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
        };
        ListKeysQuery: {
            /** @description Also those that have expired or are revoked. */
            all?: boolean;
            namespace?: string;
        };
        ListNotebooksQuery: {
            namespace?: string;
        };
        ListSandboxesQuery: {
            /** @description `next` of the previous page. */
            after?: string;
            /** @description Those of all nodes of the fleet, instead of the one that is asked. */
            all_nodes?: boolean;
            /** @description `key` or `key=value`; all must match. */
            label?: string[];
            /**
             * Format: uint16
             * @description The maximum number of entries.
             */
            limit?: number;
            namespace?: string;
            /** @description The states; any of them matches. */
            state?: components["schemas"]["StateName"][];
        };
        ListSessionsQuery: {
            /** @description Also list sessions that only the log has. */
            recorded?: boolean;
        };
        ListSnapshotsQuery: {
            namespace?: string;
        };
        ListTemplatesQuery: {
            namespace?: string;
        };
        ListVolumesQuery: {
            namespace?: string;
        };
        /** @description An entry of a log. */
        LogEntry: {
            /**
             * Format: uint64
             * @description The host's time of recording, in milliseconds since 1970; absent for entries that are not
             *     from the log.
             */
            at_ms?: number;
            /** @description The position after this entry, for `after`. */
            place?: string;
        } & ({
            command: string;
            session: string;
            /** Format: uint64 */
            started_at_ms: number;
            /** @constant */
            type: "started";
        } | {
            base64?: string;
            /**
             * Format: uint64
             * @description The offset of the first byte in the session's output.
             */
            offset: number;
            session: string;
            stream: components["schemas"]["LogStream"];
            text?: string;
            /** @constant */
            type: "output";
        } | {
            /** Format: uint64 */
            from: number;
            session: string;
            stream: components["schemas"]["LogStream"];
            /** Format: uint64 */
            to: number;
            /** @constant */
            type: "gap";
        } | {
            /** Format: uint16 */
            columns: number;
            /** Format: uint16 */
            rows: number;
            session: string;
            /** @constant */
            type: "resized";
        } | {
            exit: components["schemas"]["Exit"];
            session: string;
            /** @constant */
            type: "exited";
        } | {
            /** Format: uint64 */
            bytes: number;
            /** @constant */
            type: "missing";
        } | {
            /** Format: uint64 */
            bytes: number;
            /** @constant */
            type: "damaged";
        } | {
            reason: string;
            /** @constant */
            type: "closed";
        } | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "problem";
        });
        /** @description A page of a log. */
        LogPage: {
            entries: components["schemas"]["LogEntry"][];
            /** @description Where the next page begins, if there are more entries yet. */
            next?: string;
        };
        LogStream: ("stdout" | "stderr") | "terminal";
        LostName: {
            /** @description The lost variables that it depends on. */
            because_of: string[];
            kind: string;
            name: string;
            /** @description The reason, with the path to the part that cannot be kept. */
            reason: string;
        };
        /** @description The kind of machine that a sandbox runs in. */
        Machine: "process" | "qemu" | "firecracker" | "cloud-hypervisor" | "external";
        /** @description What to change of a node. */
        MarkNode: {
            readiness: components["schemas"]["NodeReadiness"];
        };
        /** @description The newest samples, or the history. */
        MetricsAnswer: {
            /**
             * Format: uint32
             * @description CPUs that the sandbox may use at once.
             */
            cpus: number;
            /**
             * Format: uint64
             * @description Requested samples that are no longer kept, before those here.
             */
            missing: number;
            /**
             * Format: uint64
             * @description The number that the next sample will have.
             */
            next: number;
            /**
             * Format: uint64
             * @description The number of the oldest kept sample.
             */
            oldest: number;
            /** @description Oldest first, with consecutive numbers. */
            samples: components["schemas"]["MetricsSample"][];
            scope: components["schemas"]["MetricsScope"];
            /** @constant */
            type: "samples";
        } | {
            /** Format: uint64 */
            from_ms: number;
            /** @description Parts of the time of which nothing is known. */
            gaps: components["schemas"]["MetricsGap"][];
            /** @description Oldest first. A step without samples has no point. */
            points: components["schemas"]["MetricsPoint"][];
            /**
             * Format: uint64
             * @description The length of a point.
             */
            step_ms: number;
            /** Format: uint64 */
            to_ms: number;
            /** @constant */
            type: "history";
        };
        /** @description An event in a stream of metrics. */
        MetricsEvent: {
            /** Format: uint64 */
            at_ms: number;
            /**
             * Format: uint64
             * @description Pages of files on disks. The kernel can drop them.
             */
            cache_bytes?: number;
            /**
             * Format: double
             * @description CPU use since the previous sample, where 100 is one CPU. The first sample has none.
             */
            cpu_percent?: number;
            /**
             * Format: double
             * @description The share of the last ten seconds in which something waited for a CPU, in percent.
             */
            cpu_pressure_percent?: number;
            /**
             * Format: uint64
             * @description The part of `cpu_us` in the kernel.
             */
            cpu_system_us?: number;
            /**
             * Format: uint64
             * @description How long the limit on CPU time has kept programs from running so far.
             */
            cpu_throttled_us?: number;
            /**
             * Format: uint64
             * @description CPU time used so far; it never decreases.
             */
            cpu_us: number;
            /**
             * Format: uint64
             * @description The part of `cpu_us` in programs.
             */
            cpu_user_us?: number;
            /**
             * Format: uint64
             * @description Bytes used in the writable file system at `/`.
             */
            disk_bytes?: number;
            /** Format: uint64 */
            disk_bytes_max?: number;
            /** Format: double */
            io_pressure_percent?: number;
            /** Format: uint64 */
            memory_bytes: number;
            /** Format: uint64 */
            memory_bytes_max?: number;
            /**
             * Format: uint64
             * @description The most memory at once so far, cache included.
             */
            memory_bytes_peak?: number;
            /** Format: double */
            memory_pressure_percent?: number;
            /** Format: uint64 */
            number: number;
            /** Format: uint64 */
            oom_kills?: number;
            /** @description There were more processes than a sample covers. */
            partial: boolean;
            /** Format: uint32 */
            processes: number;
            /**
             * Format: uint64
             * @description Bytes read from block devices so far.
             */
            read_bytes?: number;
            /** Format: uint64 */
            swap_bytes?: number;
            /** @constant */
            type: "sample";
            /**
             * Format: uint64
             * @description Since the agent began.
             */
            uptime_ms: number;
            /** Format: uint64 */
            written_bytes?: number;
        } | {
            /** Format: uint64 */
            samples: number;
            /** @constant */
            type: "missing";
        } | {
            code: components["schemas"]["Code"];
            /** @description Values for programs; which ones depends on the code. */
            details?: {
                [key: string]: unknown;
            };
            /** @description What to do about it. */
            hint?: string;
            /** @description One sentence that says what was wrong. */
            message: string;
            /** @constant */
            type: "problem";
        };
        /** @description A part of the time of which nothing is known. */
        MetricsGap: {
            /** Format: uint64 */
            from_ms: number;
            /** Format: uint64 */
            to_ms: number;
        };
        /** @description What a sandbox used in one step. What is not known is absent. */
        MetricsPoint: {
            /**
             * Format: uint64
             * @description When the step began.
             */
            at_ms: number;
            /** @description Pages of files on disks. The kernel can drop them. */
            cache_bytes?: components["schemas"]["MetricsRange"];
            /**
             * Format: uint64
             * @description The time that its samples account for. It may exceed the step: a sandbox in which nothing runs is sampled
             *     every twelve seconds.
             */
            covered_ms: number;
            /** @description CPU use, where 100 is one CPU. */
            cpu_percent?: components["schemas"]["MetricsRange"];
            /** @description The share of ten seconds in which something waited for a CPU, in percent. */
            cpu_pressure_percent?: components["schemas"]["MetricsRange"];
            /**
             * Format: uint64
             * @description CPU time of the kernel in this step.
             */
            cpu_system_us?: number;
            /**
             * Format: uint64
             * @description How long the limit on CPU time kept programs from running in this step.
             */
            cpu_throttled_us?: number;
            /**
             * Format: uint64
             * @description CPU time used in it.
             */
            cpu_us: number;
            /**
             * Format: uint64
             * @description CPU time of programs in this step.
             */
            cpu_user_us?: number;
            /** @description Bytes used in the writable file system at `/`. */
            disk_bytes?: components["schemas"]["MetricsRange"];
            /** Format: uint64 */
            disk_bytes_max?: number;
            /** Format: uint64 */
            egress_received_bytes: number;
            /**
             * Format: uint64
             * @description Bytes sent to the outside in this step.
             */
            egress_sent_bytes: number;
            io_pressure_percent?: components["schemas"]["MetricsRange"];
            memory_bytes?: components["schemas"]["MetricsRange"];
            /** Format: uint64 */
            memory_bytes_max?: number;
            /**
             * Format: uint64
             * @description The most memory at once since the sandbox began, cache included.
             */
            memory_bytes_peak?: number;
            memory_pressure_percent?: components["schemas"]["MetricsRange"];
            /**
             * Format: uint64
             * @description Processes killed because memory ran out, in this step.
             */
            oom_kills: number;
            processes?: components["schemas"]["MetricsRange"];
            /**
             * Format: uint64
             * @description Bytes read from block devices in this step.
             */
            read_bytes: number;
            /** Format: uint64 */
            samples: number;
            swap_bytes?: components["schemas"]["MetricsRange"];
            /** Format: uint64 */
            written_bytes: number;
        };
        /** @description The least value, the mean over time, and the greatest value. */
        MetricsRange: {
            /** Format: double */
            max: number;
            /** Format: double */
            mean: number;
            /** Format: double */
            min: number;
        };
        /** @description What a sandbox used at one moment. What is not known is absent. */
        MetricsSample: {
            /** Format: uint64 */
            at_ms: number;
            /**
             * Format: uint64
             * @description Pages of files on disks. The kernel can drop them.
             */
            cache_bytes?: number;
            /**
             * Format: double
             * @description CPU use since the previous sample, where 100 is one CPU. The first sample has none.
             */
            cpu_percent?: number;
            /**
             * Format: double
             * @description The share of the last ten seconds in which something waited for a CPU, in percent.
             */
            cpu_pressure_percent?: number;
            /**
             * Format: uint64
             * @description The part of `cpu_us` in the kernel.
             */
            cpu_system_us?: number;
            /**
             * Format: uint64
             * @description How long the limit on CPU time has kept programs from running so far.
             */
            cpu_throttled_us?: number;
            /**
             * Format: uint64
             * @description CPU time used so far; it never decreases.
             */
            cpu_us: number;
            /**
             * Format: uint64
             * @description The part of `cpu_us` in programs.
             */
            cpu_user_us?: number;
            /**
             * Format: uint64
             * @description Bytes used in the writable file system at `/`.
             */
            disk_bytes?: number;
            /** Format: uint64 */
            disk_bytes_max?: number;
            /** Format: double */
            io_pressure_percent?: number;
            /** Format: uint64 */
            memory_bytes: number;
            /** Format: uint64 */
            memory_bytes_max?: number;
            /**
             * Format: uint64
             * @description The most memory at once so far, cache included.
             */
            memory_bytes_peak?: number;
            /** Format: double */
            memory_pressure_percent?: number;
            /** Format: uint64 */
            number: number;
            /** Format: uint64 */
            oom_kills?: number;
            /** @description There were more processes than a sample covers. */
            partial: boolean;
            /** Format: uint32 */
            processes: number;
            /**
             * Format: uint64
             * @description Bytes read from block devices so far.
             */
            read_bytes?: number;
            /** Format: uint64 */
            swap_bytes?: number;
            /**
             * Format: uint64
             * @description Since the agent began.
             */
            uptime_ms: number;
            /** Format: uint64 */
            written_bytes?: number;
        };
        /** @description What the numbers cover. */
        MetricsScope: "machine" | "namespace" | "agent";
        /** @description Bytes of an output that the log has not. */
        Missing: {
            because: components["schemas"]["MissingBecause"];
            /** Format: uint64 */
            from: number;
            /** Format: uint64 */
            to: number;
        };
        MissingBecause: "damaged" | "rotated" | "not_recorded";
        /** @description What to move where. */
        MoveFile: {
            from: components["schemas"]["FilePath"];
            /** @description Replace what is already there. */
            replace?: boolean;
            to: components["schemas"]["FilePath"];
        };
        /** @description A move. */
        MovedFile: {
            /** @description The old path. */
            from: string;
            from_base64?: string;
            /** @description The new path. */
            path: string;
            path_base64?: string;
        };
        NamespaceUsage: {
            namespace: string;
            usage: components["schemas"]["Usage2"];
        };
        /** @description A directory to make. */
        NewDirectory: {
            /** @description Make missing parent directories, and accept an existing directory. */
            parents?: boolean;
            path: components["schemas"]["FilePath"];
            /** @description Octal; 0755 by default. */
            permissions?: string;
        };
        /** @description A node, as it describes itself. */
        NodeInfo: {
            /** @description Where its bridge is reached. */
            address: string;
            /** Format: uint64 */
            cpu_millis: number;
            /** @description Whether it is the one that answers. */
            here: boolean;
            labels: {
                [key: string]: string;
            };
            /** @description Kinds of machines. */
            machines: string[];
            /** Format: uint64 */
            memory_mib: number;
            name: string;
            readiness: components["schemas"]["NodeReadiness"];
            /**
             * Format: uint32
             * @description What sandboxes may be promised there together.
             */
            sandboxes: number;
            /** @description Why it is not in the fleet at the moment; only of the one that answers. */
            trouble?: string;
            version: string;
        };
        /** @description All nodes. */
        NodeList: {
            nodes: components["schemas"]["NodeInfo"][];
        };
        /** @description Whether a node takes new sandboxes. */
        NodeReadiness: "ready" | "cordoned" | "draining";
        /** @description A notebook. */
        Notebook: {
            /** Format: uint64 */
            created_at_ms: number;
            language: string;
            name: string;
            namespace: string;
            /** @description Whether that sandbox belongs to it. */
            own_sandbox: boolean;
            /**
             * Format: uint64
             * @description How many runs it has had.
             */
            runs: number;
            /** @description The sandbox of its runs. */
            sandbox: string;
            /** @description Its variables on disk; absent in lists and before the first save. */
            saved?: components["schemas"]["SavedState"];
            /**
             * Format: uint64
             * @description How many runs have changes that are not on disk. Cancelled runs and runs that were already
             *     reported as lost are not counted.
             */
            unsaved_runs: number;
            /**
             * Format: uint64
             * @description When its last run started.
             */
            used_at_ms: number;
        };
        NotebookHistoryQuery: {
            /**
             * Format: uint64
             * @description Only runs before this number.
             */
            before?: number | null;
            /** @description Only runs that failed. */
            failed?: boolean;
            /**
             * Format: uint64
             * @description The maximum number of runs, up to 1000; 100 by default.
             */
            limit?: number | null;
            /**
             * Format: uint64
             * @description Only runs that began at this time or later.
             */
            since_ms?: number | null;
        };
        NotebookList: {
            notebooks: components["schemas"]["Notebook"][];
        };
        /** @description What happens to a program when its client disconnects. */
        OnDisconnect: "cancel" | "detach";
        /** @description What happens to a sandbox when it has been idle for its idle time. */
        OnIdle: "stop" | "pause" | "snapshot";
        /** @description What becomes of a sandbox that is lost with its node. */
        OnLost: "lose" | "restart" | "restore";
        /** @description A notebook to open. */
        OpenNotebook: {
            /** @description `python` or `node`; a new notebook has `python` by default. */
            language?: string | null;
            /** @description Its name in its namespace, of at most 54 characters. */
            name: string;
            /** @description The namespace; by default the key's, or `default`. */
            namespace?: string;
            /** @description A running sandbox of its namespace to run in. */
            sandbox?: string;
            /** @description The options of its own sandbox. */
            spec?: components["schemas"]["OwnSandbox"] | null;
        };
        /** @description A context to open. */
        OpenRequest: {
            context: string;
            /** @description The working directory; the sandbox's own by default. */
            cwd?: string | null;
            /**
             * @description Variables added to the sandbox's environment. A name must not be empty or contain `=`, and
             *     zero bytes are not allowed.
             */
            env?: {
                [key: string]: string;
            };
            /** @description `python`, `node`, `bash`, or another name of one of them. */
            language: string;
            limits?: components["schemas"]["ContextLimits"];
            /** @description The path or name of the interpreter, instead of the usual ones. */
            program?: string | null;
            /** @description `name`, `name:group`, `uid` or `uid:gid`. */
            user?: string | null;
            /** @description The directory of a Python virtual environment, whose interpreter is `program`. */
            venv?: string | null;
        };
        /** @description The outcome of the operation. */
        Outcome: "ok" | "refused" | "failed";
        /**
         * @description The outcome.
         * @enum {string}
         */
        OutcomeName: "ok" | "refused" | "failed";
        /** @description One output of the session or the run. */
        Output: {
            /**
             * Format: uint64
             * @description How much the program has written to it.
             */
            bytes: number;
            /**
             * Format: uint64
             * @description How much of it no reader has had.
             */
            dropped: number;
            output: string;
            /**
             * @description The SHA-256 of all of it: of a session the agent's, absent if the agent gave none; of a run the bridge's, of what it
             *     has received.
             */
            sha256?: string;
        };
        /** @description One output of a session. */
        OutputComparison: {
            /**
             * Format: uint64
             * @description How many bytes the agent has digested: all that the program has written.
             */
            bytes?: number;
            finding: components["schemas"]["Finding"];
            /**
             * Format: uint64
             * @description How many of them the log has.
             */
            kept_bytes: number;
            /** @description SHA-256 of what the log has, if it has all of them. */
            kept_sha256?: string;
            /** @description What the log has not, the first 32 parts. */
            missing?: components["schemas"]["Missing"][];
            /** @description `stdout`, `stderr` or `terminal`. */
            output: string;
            /** @description The agent's SHA-256 of them. */
            sha256?: string;
        };
        /** @description An event of a session's output. */
        OutputEvent: ({
            channel: components["schemas"]["ChannelName"];
            /**
             * Format: uint64
             * @description The offset in the output where it begins, in bytes.
             */
            offset: number;
            /** @constant */
            type: "output";
        } & ({
            text: string;
        } | {
            base64: string;
        })) | {
            channel: components["schemas"]["ChannelName"];
            /** Format: uint64 */
            from: number;
            /** Format: uint64 */
            to: number;
            /** @constant */
            type: "gap";
        } | {
            exit: components["schemas"]["Exit"];
            /** @constant */
            type: "exited";
        } | {
            /** @description What its record says of that. */
            sandbox?: string;
            /** @constant */
            type: "over";
        } | {
            /** @constant */
            type: "running";
        } | {
            /** @constant */
            type: "waiting";
        } | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "problem";
        };
        /**
         * @description The options of a notebook's own sandbox. There is no `env`, because it may hold secrets and
         *     these options are stored.
         */
        OwnSandbox: {
            /** Format: double */
            cpus?: number | null;
            /**
             * Format: uint64
             * @description How long it may be idle before it ends or is paused; 30 minutes by default.
             */
            idle_ttl_ms?: number | null;
            image?: string | null;
            labels?: {
                [key: string]: string;
            };
            machine?: components["schemas"]["Machine"] | null;
            /** Format: uint64 */
            memory_mib?: number | null;
            /** @description What happens then: it ends by default, or is paused until the next run. */
            on_idle?: components["schemas"]["OnIdle"] | null;
            workdir?: string | null;
        };
        PackFilesQuery: {
            /** @description If there is a symlink at the path, archive what it points to. */
            follow?: boolean;
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
        };
        /** @description Packages by the names that their package managers know. */
        PackageList: {
            /** @description Node.js packages, as `express` or `express@4`, installed for all users. */
            npm?: string[];
            /** @description Python requirements, as `pandas` or `pandas==2.2`. */
            pip?: string[];
        };
        /** @description A run in the history. */
        PastRun: {
            /** Format: uint64 */
            artifacts: number;
            /** @description The key that started it. */
            by: string;
            cache_hit?: boolean;
            cache_key?: string;
            /** @description The beginning of the code. */
            code: string;
            /** Format: uint64 */
            code_bytes: number;
            /** @description SHA-256, in hexadecimal digits. */
            code_digest: string;
            /** Format: uint64 */
            duration_us: number;
            error?: string;
            error_type?: string;
            namespace: string;
            notebook: string;
            /** Format: uint64 */
            number: number;
            sandbox: string;
            /** Format: uint64 */
            started_at_ms: number;
            /** @description The status in the run's result, or `abandoned` if nobody waited for its end. */
            status: string;
            stderr: string;
            /** Format: uint64 */
            stderr_bytes: number;
            /** @description The beginning of the output. */
            stdout: string;
            /** Format: uint64 */
            stdout_bytes: number;
        };
        /** @description A link, without what opens it. */
        PreviewInfo: {
            created_at: string;
            expires_at: string;
            /** @description By which it can be removed. */
            id: string;
            /** @description The id of the key that made it; absent for the operator's own. */
            key?: string;
            /** Format: uint16 */
            port: number;
        };
        /** @description The links to ports of a sandbox that have not expired, the oldest first. */
        PreviewList: {
            previews: components["schemas"]["PreviewInfo"][];
        };
        /** @description Why a call was not carried out. */
        Problem: {
            code: components["schemas"]["Code"];
            /** @description Values for programs; which ones depends on the code. */
            details?: {
                [key: string]: unknown;
            };
            /** @description What to do about it. */
            hint?: string;
            /** @description One sentence that says what was wrong. */
            message: string;
        };
        /** @description What has ended. */
        ProgramKind: "command" | "run" | "app";
        /** @description What programs, runs or apps of one name have cost that have ended on one day. */
        ProgramUsage: {
            /** Format: double */
            cpu_seconds: number;
            /** @description A date of UTC. */
            day: string;
            /**
             * Format: uint64
             * @description How many.
             */
            ends: number;
            kind: components["schemas"]["ProgramKind"];
            /** @description The last part of a program's path, a context, or an app. */
            name: string;
            namespace: string;
            /**
             * Format: double
             * @description The most memory that each has had, times its time: at least what it has used. The default is `0.0`.
             */
            peak_gib_seconds?: number;
            /**
             * Format: uint64
             * @description From block devices; not known of runs.
             */
            read_bytes?: number;
            /**
             * Format: double
             * @description From each start to its end, one after the other.
             */
            seconds: number;
            /** Format: uint64 */
            written_bytes?: number;
        };
        /** @description An image to pull. */
        PullImage: {
            /** @description The image's name with a tag or a digest, such as `registry.example/team/app:2`. */
            image: string;
        };
        /** @description All pulls. */
        PullList: {
            pulls: components["schemas"]["PullUnderWay"][];
        };
        /**
         * @description When an image is pulled.
         * @enum {string}
         */
        PullPolicy: "never" | "missing" | "always";
        /** @description A pull in progress. */
        PullUnderWay: {
            /**
             * Format: uint64
             * @description Bytes of its layers on this host.
             */
            bytes: number;
            image: string;
            /**
             * Format: uint64
             * @description Bytes of all its layers; 0 until that is known.
             */
            size_bytes: number;
        };
        /** @description What sandboxes are made of. Each option is that of a sandbox, which takes precedence. */
        PutTemplate: {
            /** Format: double */
            cpus?: number | null;
            egress?: string[] | null;
            /** @description Kept with the template, on the server's disk. The values are never shown. */
            env?: {
                [key: string]: string;
            };
            /** Format: uint64 */
            idle_ttl_ms?: number | null;
            /** @description As for a sandbox; its meaning is settled now, and an image must be allowed to the caller. */
            image?: string | null;
            /** Format: uint64 */
            keep_stopped_ms?: number | null;
            labels?: {
                [key: string]: string;
            };
            machine?: components["schemas"]["Machine"] | null;
            /** Format: uint64 */
            memory_mib?: number | null;
            /** @description What happens when a sandbox has been idle for that long. */
            on_idle?: components["schemas"]["OnIdle"] | null;
            /** @description A script for `/bin/sh`, which is run until it exits with 0. Only then is a sandbox handed out. */
            ready?: string | null;
            /**
             * Format: uint64
             * @description How long that may take; a minute by default. A sandbox that is not ready then is ended.
             */
            ready_timeout_ms?: number | null;
            /** Format: uint64 */
            scratch_bytes?: number | null;
            /** @description A script for `/bin/sh`, which runs as the session `template-start` of each sandbox. */
            start?: string | null;
            /** Format: uint64 */
            ttl_ms?: number | null;
            user?: string | null;
            /**
             * Format: uint64
             * @description How many sandboxes are kept started and ready; in a fleet by each node that has the image. They count for no cap,
             *     so this needs the scope `admin`. The default is `0`.
             */
            warm?: number;
            workdir?: string | null;
        };
        ReadAppLogQuery: {
            /**
             * Format: uint64
             * @description The maximum number of bytes from the end; 16384 by default.
             */
            tail?: number;
        };
        ReadFileQuery: {
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
        };
        ReadLogQuery: {
            /** @description The `place` of an entry, or `next` of the previous page. */
            after?: string;
            /** @description Continue with new entries until the sandbox ends. */
            follow?: boolean;
            /**
             * Format: uint16
             * @description Entries per page; 1000 by default. A page with much output ends earlier.
             */
            limit?: number;
            /** @description Only this session. */
            session?: string;
            /**
             * Format: uint64
             * @description Only entries recorded at this time or later, in milliseconds since 1970.
             */
            since_ms?: number;
            /** @description Only this output. Starts and ends of sessions are still included. */
            stream?: components["schemas"]["LogStream"];
            /**
             * Format: uint32
             * @description Only this many of the last lines, over all outputs. Not with `after`.
             */
            tail?: number;
            /**
             * Format: uint64
             * @description Only entries recorded at this time or earlier.
             */
            until_ms?: number;
        };
        ReadSessionQuery: {
            /** @description Which output; all by default. */
            channel?: components["schemas"]["ChannelName"];
            /** @description Continue until the session ends. */
            follow?: boolean;
            /**
             * Format: uint64
             * @description The first byte of each output to send; 0 by default.
             */
            from?: number;
            /**
             * Format: uint64
             * @description The first byte of stderr, if it differs.
             */
            stderr_from?: number;
            /**
             * Format: uint64
             * @description At most this many of the newest bytes of each output.
             */
            tail?: number;
        };
        ReadTimelineQuery: {
            /**
             * @description The `place` of an entry, or `next` of the previous page, read with the same parameters. Within a minute the page
             *     after `next` goes on where that one ended; any other is looked for from the beginning.
             */
            after?: string;
            /**
             * Format: uint64
             * @description Only entries of this time or later, in milliseconds since 1970.
             */
            from_ms?: number;
            /** @description Kinds; any of them matches. `unknown` always does. */
            kind?: components["schemas"]["TimelineKind"][];
            /**
             * Format: uint16
             * @description Entries per page; 1000 by default. A page with much output ends earlier.
             */
            limit?: number;
            /** @description No other session than this one. Entries that are about no session stay. */
            session?: string;
            /**
             * Format: uint64
             * @description Only entries of this time or earlier.
             */
            to_ms?: number;
        };
        /** @description A signed statement. */
        Receipt: {
            /** @description The public key of the bridge, in URL-safe base64. */
            key: string;
            /** @description Of the statement as compact JSON, in URL-safe base64. */
            signature: string;
            statement: components["schemas"]["Statement"];
        };
        /** @description The body of one upload. */
        ReceivedFile: {
            /**
             * Format: uint64
             * @description The length of what was sent.
             */
            bytes: number;
            /** @description `write_file`, or `unpack_files` of an archive. */
            operation: string;
            /** @description The file, or the directory of the archive. */
            path: string;
            /** @description Where in the file it was put: `whole`, `append`, or an offset. Absent of an archive. */
            place?: string;
            /** @description Of what was sent. */
            sha256: string;
            time: string;
        };
        /** @description Files that were put into the sandbox, through whichever interface. */
        ReceivedFiles: {
            /** @description Whether there were more than are listed here. */
            has_more: boolean;
            /** @description Whether a client at another node of the fleet has reached the agent before the end: what it did there is not recorded. */
            has_unrecorded?: boolean;
            /** @description The first of them, in the order of their ends. */
            listed: components["schemas"]["ReceivedFile"][];
        };
        /** @description What was sent to the input of a session. */
        ReceivedInput: {
            /** @description Whether there were more than are listed here. */
            has_more: boolean;
            /**
             * @description Whether a writer that has sent something had not ended when the receipt was issued, or was killed: what it has sent is
             *     not listed.
             */
            is_open?: boolean;
            /** @description The first of its parts, one for each writer, in the order of their ends. */
            listed: components["schemas"]["InputPart"][];
        };
        /** @description What is recorded of a sandbox's sessions. */
        RecordPolicy: "off" | "on" | "input";
        /** @description A change that was not made on the host. */
        Refused: {
            path: string;
            why: string;
        };
        ReleaseSessionQuery: {
            /** @description End it first if it runs, with the processes that it left behind. */
            kill?: boolean;
        };
        /** @description When the policy removes a snapshot, as things are now. */
        Removal: {
            /**
             * Format: uint64
             * @description In milliseconds since 1970. One that is not in the future is removed within a minute, or as soon as
             *     nothing starts from the snapshot and nobody exports it.
             */
            at_ms: number;
            why: components["schemas"]["Excess"];
        };
        RemoveArtifactsQuery: {
            /** @description Every artifact of the namespace. */
            all?: boolean;
            category?: components["schemas"]["CategoryName"];
            namespace?: string;
            notebook?: string;
            /** Format: uint64 */
            older_than_ms?: number;
            sandbox?: string;
        };
        RemoveFileQuery: {
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
            /** @description Remove a directory with its content, but never across a mount. */
            recursive?: boolean;
        };
        RemoveSandboxQuery: {
            /** @description Kill it first if it runs. */
            force?: boolean;
        };
        /** @description The removed artifacts. */
        Removed: {
            /**
             * Format: uint64
             * @description Their total size. Equal contents are stored once.
             */
            bytes: number;
            /** Format: uint64 */
            removed: number;
        };
        /** @description A command that makes files. */
        RenderCommand: {
            command: components["schemas"]["Command2"];
            /** @description The working directory; `/` by default. */
            cwd?: string | null;
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            /**
             * @description Which of the files that it makes or changes are kept: paths below its working directory,
             *     with `*` and `?` for parts of a name and `**` for directories. All of them by default.
             */
            outputs?: string[];
            /**
             * Format: uint64
             * @description The time from its start until it is killed with all that it started.
             */
            timeout_ms?: number | null;
        };
        /** @description The events of a command. `result` and `problem` come last. */
        RenderEvent: {
            /**
             * Format: double
             * @description The progress from 0 to 1. It may fall, because a command may do several things in turn.
             */
            done: number;
            /** @description What the progress is about, if the command names it. */
            label?: string;
            /** @constant */
            type: "progress";
        } | {
            result: components["schemas"]["RenderResult"];
            /** @constant */
            type: "result";
        } | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "problem";
        };
        /** @description A command's result and the files that it made. */
        RenderResult: {
            captured: components["schemas"]["Captured"];
            cause: components["schemas"]["Cause"];
            /** Format: uint64 */
            duration_us: number;
            /**
             * Format: int32
             * @description The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
             *     a timeout.
             */
            exit_code: number;
            /** @description The end of its output. */
            log: string;
            /** @description Whether it ended by itself with code 0. */
            success: boolean;
            /** @description Whether there was more output. */
            truncated: boolean;
        };
        /** @description What a new interpreter restored of a notebook's variables. */
        Reopened: {
            /**
             * Format: uint64
             * @description The variables are as this run left them; 0 if nothing was saved.
             */
            as_of_run: number;
            depends: components["schemas"]["Dependent"][];
            /** @description Why the working directory is different. */
            directory_lost?: string;
            lost: components["schemas"]["LostName"][];
            restored: string[];
            unavailable: components["schemas"]["Unavailable"][];
            /**
             * Format: uint64
             * @description How many later runs lost their changes; cancelled runs are not counted.
             */
            unsaved_runs: number;
        };
        /** @enum {string} */
        RunChannel: "stdout" | "stderr";
        /** @description An uncaught exception. */
        RunError: {
            /** @description Outermost first. */
            frames: components["schemas"]["Frame"][];
            message: string;
            /** @description As the language's own interpreter would print it. */
            traceback: string;
            /** @description Its type, such as `ZeroDivisionError` or `TypeError`. */
            type: string;
        };
        /** @description An event of a run or of its context. */
        RunEvent: {
            /**
             * Format: uint64
             * @description The guest's time in microseconds since 1970; absent if the guest does not report it.
             */
            at_us?: number;
            /**
             * Format: uint64
             * @description The run that it belongs to, if any.
             */
            run?: number;
        } & ({
            /** Format: uint32 */
            ahead: number;
            /** @constant */
            type: "queued";
        } | {
            notebook: components["schemas"]["InNotebook"];
            /** @constant */
            type: "notebook";
        } | {
            /**
             * Format: uint64
             * @description The number of the run in its interpreter, from 1.
             */
            count: number;
            /** @description Why the interpreter is a new one, if the variables of the last run are lost. */
            lost?: string;
            /** @constant */
            type: "started";
        } | ({
            /** @constant */
            type: "stdout";
        } & components["schemas"]["Chunk"]) | ({
            /** @constant */
            type: "stderr";
        } & components["schemas"]["Chunk"]) | ({
            /** @constant */
            type: "late";
        } & components["schemas"]["Late"]) | {
            display: components["schemas"]["Display"];
            /** @constant */
            type: "display";
        } | {
            artifact: components["schemas"]["Artifact"];
            /** @constant */
            type: "artifact";
        } | {
            captured: components["schemas"]["Captured"];
            /** @constant */
            type: "artifacts";
        } | {
            error: components["schemas"]["RunError"];
            /** @constant */
            type: "error";
        } | {
            prompt: string;
            /** Format: uint64 */
            request: number;
            /** @description The input must not be shown. */
            secret: boolean;
            /** @constant */
            type: "input_request";
        } | {
            reason: string;
            /** @constant */
            type: "lost";
        } | {
            /** Format: uint64 */
            bytes: number;
            /** Format: uint64 */
            events: number;
            /** @constant */
            type: "gap";
        } | ({
            /** @constant */
            type: "finished";
        } & components["schemas"]["End"]) | {
            problem: components["schemas"]["Problem"];
            /** @constant */
            type: "problem";
        });
        /** @description Code to run. */
        RunRequest: {
            /**
             * @description Keep its artifacts: pictures and documents that it displays, files that it offers, and new
             *     and changed files in the directory of its context and in `/artifacts`.
             */
            artifacts?: boolean;
            /**
             * @description A name for the code, stored in the history; only for runs in notebooks. Reuse of compiled
             *     code depends on the code alone.
             */
            cache_key?: string | null;
            /** @description At most 16 MiB. */
            code: string;
            grace?: components["schemas"]["Grace"];
            /**
             * @description Whether a client answers the code's requests for input when `stdin` is used up. If not, the
             *     code reads the end of the input.
             */
            input?: boolean;
            /**
             * @description `python`, `node`, `bash`, or an alias of one of them. Needed if the context is not open and
             *     is not named like a language. A run without a context uses Python by default.
             */
            language?: string | null;
            /** @description The name of the code in tracebacks. */
            name?: string | null;
            /**
             * @description What happens when its client disconnects: the run is interrupted, or it continues and its
             *     output goes to the followers of the context.
             */
            on_disconnect?: components["schemas"]["OnDisconnect"];
            /**
             * Format: uint64
             * @description How many bytes of stdout and stderr a buffered run keeps, and as many of everything else
             *     together; 8 MiB by default.
             */
            output_bytes_max?: number | null;
            /** @description The code's input, which it reads line by line. */
            stdin?: string | null;
            /**
             * Format: uint64
             * @description The time limit of the run from its start, without waiting. A run that takes longer is
             *     interrupted, and its result says so. By default only the deadline of the call applies.
             */
            timeout_ms?: number | null;
        };
        /** @description A finished run and its output. */
        RunResult: {
            /** @description Files that the code offered. */
            artifacts: components["schemas"]["Artifact"][];
            /** @description Whether compiled code was reused, if the language reports it. */
            cached?: boolean;
            /** @description With `artifacts`: the artifacts that were captured. */
            captured?: components["schemas"]["Captured"];
            /** @description Why the interpreter died. */
            cause?: components["schemas"]["Cause"];
            context: string;
            /**
             * Format: uint64
             * @description The number of the run in its interpreter, from 1; absent if it never started.
             */
            count?: number;
            /**
             * Format: uint64
             * @description CPU time of the interpreter with all its threads and, if it reports them, the children that
             *     it waited for.
             */
            cpu_us?: number;
            /** @description The displays, each as it was last updated. */
            displays: components["schemas"]["Display"][];
            /** Format: uint64 */
            duration_us: number;
            error?: components["schemas"]["RunError"];
            /**
             * Format: int32
             * @description The code that the code asked to exit with, or the interpreter's exit code as a shell reports
             *     it.
             */
            exit_code?: number;
            /** @description Output of earlier runs after they ended. */
            late: components["schemas"]["Late"][];
            /** @description Why the interpreter was a new one, if the variables of the last run are lost. */
            lost?: string;
            /** Format: uint64 */
            memory_bytes_peak?: number;
            /** @description Details of a run in a notebook. */
            notebook?: components["schemas"]["InNotebook"];
            /** @description More about the status, in words. */
            reason?: string;
            /** Format: uint64 */
            run: number;
            /** @description The last step that an interrupt or a deadline needed. */
            rung?: components["schemas"]["RungName"];
            /** @description Whether the next run finds the variables of this one. */
            state_kept: boolean;
            status: components["schemas"]["RunStatus"];
            stderr: string;
            stderr_base64?: string;
            /** Format: uint64 */
            stderr_bytes: number;
            /** @description The text; invalid UTF-8 is shown as U+FFFD. */
            stdout: string;
            /** @description The exact bytes of stdout, if they are not valid UTF-8. */
            stdout_base64?: string;
            /**
             * Format: uint64
             * @description Bytes that the run wrote in total.
             */
            stdout_bytes: number;
            /**
             * Format: uint64
             * @description The deadline that was exceeded.
             */
            timeout_ms?: number;
            /** @description Whether a limit cut something. */
            truncated: boolean;
            /** @description The value of the last expression. */
            value?: components["schemas"]["Display"];
        };
        RunStatus: "ok" | "error" | "exited" | "interrupted" | "timeout" | "died" | "cancelled";
        /** @description The steps of an interrupt. */
        RungName: "polite" | "firm" | "killed";
        /** @description A sandbox. */
        Sandbox: {
            /** @description What it was forked from, the nearest first. */
            ancestors?: components["schemas"]["Ancestor"][];
            /**
             * @description It is paused because it was idle, and continues at the next request. One that was paused by a
             *     call continues when it is resumed.
             */
            asleep?: boolean;
            /** Format: double */
            cpus?: number;
            /** Format: uint64 */
            created_at_ms: number;
            /** @description Whether what its programs write outlives the host. */
            durability?: components["schemas"]["Durability"];
            /** @description The egress rules. */
            egress?: string[];
            /** @description Only the names, because values may be secrets. */
            env_names: string[];
            /**
             * Format: uint64
             * @description When it ends, even if it is busy.
             */
            expires_at_ms?: number;
            /** @description The lost sandbox of this name that it was made after. */
            follows?: components["schemas"]["Followed"];
            hostname: string;
            /** @description Its unique id, which is never reused, even if its name is. */
            id: string;
            /**
             * Format: uint64
             * @description When it ends, or is paused, if it stays idle.
             */
            idle_expires_at_ms?: number;
            /**
             * Format: uint64
             * @description Since when it has been idle.
             */
            idle_since_ms?: number;
            /** Format: uint64 */
            idle_ttl_ms?: number;
            image?: string;
            /** @description The digest of its image in this host's store, even if the image's name has moved since. */
            image_digest?: string;
            /** Format: uint64 */
            keep_stopped_ms?: number;
            labels: {
                [key: string]: string;
            };
            machine: components["schemas"]["Machine"];
            /** Format: uint64 */
            memory_mib?: number;
            name: string;
            namespace: string;
            /** @description The node of the fleet that has it; only in lists of all nodes. */
            node?: string;
            /** @description It is paused, and its memory is on disk. */
            on_disk?: boolean;
            /** @description What happens when it has been idle for `idle_ttl_ms`. */
            on_idle: components["schemas"]["OnIdle"];
            /** @description What becomes of it when it is lost with its node. */
            on_lost?: components["schemas"]["OnLost"];
            /** @description Why it stopped, or does not answer. */
            reason?: string;
            /** @description What is recorded of its sessions. */
            record?: components["schemas"]["RecordPolicy"];
            /** Format: uint64 */
            scratch_bytes: number;
            /** @description Where the writable layer of a process sandbox is: `memory` or `disk`. */
            scratch_place?: string;
            /** @description The names of its secrets. */
            secrets?: string[];
            state: components["schemas"]["StateName"];
            /** Format: uint64 */
            stopped_at_ms?: number;
            /** @description The template that it was made of. */
            template?: string;
            /** Format: uint64 */
            ttl_ms?: number;
            /** @description The default user of programs. */
            user?: string;
            /** @description Its volumes, each as `NAME:/path`. */
            volumes?: string[];
            /** @description Requested options that this host could not provide. */
            warnings: string[];
            workdir?: string;
            /** @description Its workspace, at `/workspace`. */
            workspace?: string;
        };
        /** @description A page of sandboxes. */
        SandboxPage: {
            /** @description The value for `after`; absent on the last page. */
            next?: string;
            sandboxes: components["schemas"]["Sandbox"][];
            /** @description Nodes of the fleet that did not answer: what they have is missing here. Absent if all did. */
            unanswered?: components["schemas"]["UnansweredNode"][];
        };
        /** @description The saved variables of a notebook, name by name. */
        SavedState: {
            /** Format: uint64 */
            bytes: number;
            /** @description Saved variables whose code uses lost ones. */
            depends: components["schemas"]["Dependent"][];
            kept: components["schemas"]["KeptName"][];
            /** @description Variables that a reopening does not restore, with the reasons. */
            lost: components["schemas"]["LostName"][];
            /**
             * Format: uint64
             * @description The last run whose changes are saved.
             */
            run: number;
            /** Format: uint64 */
            saved_at_ms: number;
            /** @description Saved variables that could not be loaded when last tried. */
            unavailable: components["schemas"]["Unavailable"][];
        };
        ScopeInfo: {
            caps: components["schemas"]["CapInfo"][];
            name: string;
            /** @description `namespace` or `key`. */
            scope: string;
        };
        /** @description What a key allows. Each includes the ones before it. */
        ScopeName: "read" | "run" | "admin";
        SendSignal: {
            signal: components["schemas"]["SignalName"];
            target?: components["schemas"]["SignalTarget"];
        };
        /** @description A session. */
        SessionInfo: {
            /** @description The argument vector as one shortened line. */
            command: string;
            /** @description How it ended; absent while it runs, or if it ended with its sandbox. */
            exit?: components["schemas"]["Exit"];
            /** @description The client that holds its keyboard. */
            keyboard?: string;
            /** @description Whether the agent still has it; otherwise it is read from the log. */
            live: boolean;
            /** Format: uint32 */
            pid: number;
            /** @description Whether its output is recorded. */
            recorded: boolean;
            running: boolean;
            session: string;
            /** Format: uint64 */
            started_at_ms: number;
            /** @description Whether its program has not executed yet; until then, `pid` may be 0. */
            starting?: boolean;
            terminal: boolean;
            /** @description Requested options that this host could not provide. */
            warnings?: string[];
        };
        SessionList: {
            sessions: components["schemas"]["SessionInfo"][];
        };
        /** @description A script to run. */
        ShellScript: {
            /**
             * @description Keep new and changed files as artifacts: those in its working directory, and those
             *     in `/artifacts` or the directory in its variable `BURROW_ARTIFACTS_DIR`.
             */
            artifacts?: boolean;
            /** @description The working directory; the sandbox's own by default. */
            cwd?: string | null;
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            limits?: components["schemas"]["Bounds"];
            on_disconnect?: components["schemas"]["OnDisconnect"];
            /**
             * Format: uint64
             * @description How many bytes of each output a result keeps, from the beginning; 8 MiB by default.
             */
            output_bytes_max?: number | null;
            script: string;
            /** @description A name for its session; a random name by default. */
            session?: string | null;
            /** @description The interpreter: `/bin/sh` by default. */
            shell?: string | null;
            /** @description Its whole input; empty by default. */
            stdin?: components["schemas"]["Content"] | null;
            /**
             * Format: uint64
             * @description The time from its start until it is killed with all that it started.
             */
            timeout_ms?: number | null;
            /** @description `name`, `name:group`, `uid` or `uid:gid`. */
            user?: string | null;
        };
        ShellSocketQuery: {
            /** @description A program and its arguments instead of a login shell. */
            argv?: string[];
            /** Format: uint16 */
            columns?: number;
            cwd?: string;
            on_disconnect?: components["schemas"]["OnDisconnect"];
            /** @description Send only bytes, without JSON messages. */
            plain?: boolean;
            /**
             * Format: uint16
             * @description The size of the client's terminal: 24 rows of 80 columns by default.
             */
            rows?: number;
            /** @description `name`, `name:group`, `uid` or `uid:gid`. */
            user?: string;
        };
        /** @description A signal by its name, with or without `SIG`, or by its number. */
        SignalName: string | number;
        /** @description Which of a session's processes a signal goes to. */
        SignalTarget: "leader" | "group" | "tree";
        /**
         * @description The size of a terminal. If there are several viewers, the last size that one of them sent
         *     applies.
         */
        Size: {
            /** Format: uint16 */
            columns: number;
            /** Format: uint16 */
            rows: number;
        };
        /** @description A saved machine, with all that ran in it. */
        Snapshot: {
            /** @description What its sandbox was forked from, the nearest first. */
            ancestors?: components["schemas"]["Ancestor"][];
            /**
             * Format: uint64
             * @description What it takes of the disk.
             */
            bytes: number;
            /** Format: uint64 */
            created_at_ms: number;
            id: string;
            image?: string;
            /**
             * Format: uint64
             * @description When it was imported from another host.
             */
            imported_at_ms?: number;
            machine: components["schemas"]["Machine"];
            /** Format: uint64 */
            memory_mib?: number;
            name: string;
            namespace: string;
            /** @description In a list: when the policy of the server removes it, and why. Absent for one that it keeps. */
            removal?: components["schemas"]["Removal"];
            /** @description The sandbox that it was taken of, and its id. */
            sandbox: string;
            /** Format: uint64 */
            scratch_bytes: number;
        };
        /** @description All snapshots that a key reaches. */
        SnapshotList: {
            snapshots: components["schemas"]["Snapshot"][];
        };
        /** @description What the agent keeps of each output until it is recorded. */
        Spool: {
            /** Format: uint64 */
            bytes?: number | null;
            policy?: components["schemas"]["SpoolPolicy"];
        };
        /** @description What happens when that is full. */
        SpoolPolicy: "block" | "drop_oldest";
        /**
         * @description The step of a start that failed.
         * @enum {string}
         */
        Stage: "user" | "stdio" | "cgroup" | "fork" | "terminal" | "identity" | "working_directory" | "exec";
        /** @description A web app to start. */
        StartApp: {
            /** @description The app's code, a Python file. */
            code?: string;
            /** @description Only for the type `command`. */
            command?: components["schemas"]["Command"];
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            /**
             * Format: uint16
             * @description The port on this host, at 127.0.0.1; 0 takes any free port. The default is `0`.
             */
            host_port?: number;
            /** @description Its name; by default a name made from its type. It replaces an ended app of the same name. */
            name?: string | null;
            /**
             * Format: uint16
             * @description The port in the sandbox; a free one by default. The app gets it as `$PORT`.
             */
            port?: number | null;
            /** @description The interpreter for `code`; `python3` by default. */
            python?: string | null;
            /** @description The path to request to see whether the app answers. The default is `/`. */
            ready_path?: string;
            /**
             * Format: uint64
             * @description How long it may take to answer; one minute by default.
             */
            ready_timeout_ms?: number | null;
            type: components["schemas"]["AppType"];
            /** @description The working directory; the sandbox's own by default. */
            workdir?: string | null;
        } & (unknown | unknown);
        /** @description A session to start. */
        StartSession: {
            /** @description The program and its arguments. */
            argv?: string[];
            /** @description The working directory; the sandbox's own by default. */
            cwd?: string | null;
            /** @description Added to the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            limits?: components["schemas"]["Bounds"];
            /**
             * @description The login shell of the user.
             * @constant
             */
            login_shell?: true;
            /** @description For `-c` of a shell. */
            script?: string;
            /** @description Its name; one is drawn by default. */
            session?: string | null;
            /** @description The interpreter of the script: `/bin/sh` by default. */
            shell?: string | null;
            spool?: components["schemas"]["Spool"];
            /** @description Whether it takes input. One on a terminal does; the others read an empty file by default. */
            stdin?: boolean;
            /** @description A terminal of this size instead of pipes. */
            terminal?: components["schemas"]["Size"] | null;
            /**
             * Format: uint64
             * @description The time from its start until it is killed with all that it started.
             */
            timeout_ms?: number | null;
            /** @description `name`, `name:group`, `uid` or `uid:gid`. */
            user?: string | null;
        } & (unknown | unknown | unknown);
        StatFileQuery: {
            /** @description If there is a symlink at the path, look at what it points to. */
            follow?: boolean;
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
        };
        /** @description The state of a sandbox. */
        StateName: ("creating" | "running" | "stopping" | "stopped") | "paused" | "lost" | "damaged";
        /** @description See the module's description. Its fields are signed in this order. */
        Statement: {
            /** @description How it ended. */
            cause: unknown;
            /** @description The argument vector of a session as one line, cut as the agent cuts it. */
            command?: string;
            /**
             * @description What the egress of the sandbox decided meanwhile, for all of its programs and not only for this session's; absent
             *     where no audit log is kept.
             */
            decisions?: components["schemas"]["Decisions"];
            /** Format: uint64 */
            duration_us: number;
            /** @description The egress rules of the sandbox. */
            egress: string[];
            ended_at: string;
            /**
             * Format: int32
             * @description Of a session.
             */
            exit_code?: number;
            /** @description What was put into the sandbox before the end, by anybody; absent of earlier bridges. */
            inputs?: components["schemas"]["ReceivedFiles"];
            /** @description RFC 3339 in UTC. */
            issued_at: string;
            limits: components["schemas"]["Limits"];
            outputs: components["schemas"]["Output"][];
            /** @description The SHA-256 of the receipt before this one. */
            previous?: string;
            /** @description What it is, if it is a run of a context. */
            run?: components["schemas"]["ContextRun"];
            sandbox: components["schemas"]["Subject"];
            /**
             * Format: uint64
             * @description From one, without gaps.
             */
            seq: number;
            /** @description Absent of a run of a context. */
            session?: string;
            /** @description By the guest's clock. */
            started_at: string;
            /** @description What was sent to the input of the session; absent if nothing was. */
            stdin?: components["schemas"]["ReceivedInput"];
        };
        /** @description The statistics of a notebook. */
        Stats: {
            /** Format: uint64 */
            artifacts_count: number;
            /**
             * Format: double
             * @description In seconds.
             */
            average_execution_time: number;
            /**
             * Format: double
             * @description The cache hits per run, over runs whose language reports it; 0 if there were none.
             */
            cache_hit_ratio: number;
            /** Format: uint64 */
            cache_hits: number;
            /** Format: uint64 */
            cache_misses: number;
            /**
             * Format: uint64
             * @description How many pieces of compiled code its interpreter caches now; absent while it is busy.
             */
            cached_compilations?: number;
            /** @description The notebook's name. */
            session_id: string;
            /** Format: uint64 */
            total_executions: number;
        };
        /** @description How to stop a sandbox. */
        StopSandbox: {
            /**
             * Format: uint64
             * @description How long its processes may take to end before they are killed.
             */
            grace_ms?: number | null;
        };
        /** @description The sandbox, and what it was made from. */
        Subject: {
            /** @description Names are used again. */
            id: string;
            image?: string;
            image_digest?: string;
            machine: string;
            name: string;
            namespace: string;
        };
        /** @description A process that outlived the program that started it. */
        Survivor: {
            command: string;
            /** Format: uint32 */
            pid: number;
        };
        /** @description The files that were copied back, as paths in the workspace; at most a thousand of each kind. */
        Synced: {
            /** @description What both sides have changed. The host's is as it was. */
            conflicts: components["schemas"]["Conflict"][];
            deleted: string[];
            /** @description What was not carried, and why. */
            refused: components["schemas"]["Refused"][];
            /**
             * Format: uint64
             * @description Paths that were not named here.
             */
            untold: number;
            written: string[];
        };
        /** @description A snapshot to take. */
        TakeSnapshot: {
            /** @description What it is called, in the namespace of the sandbox. */
            name: string;
        };
        /** @description A template. */
        Template: {
            /** @description It is from the server's configuration, and no call changes it. */
            configured: boolean;
            /** Format: double */
            cpus?: number;
            /** Format: uint64 */
            created_at_ms: number;
            egress?: string[];
            /** @description Only the names, because values may be secrets. */
            env_names: string[];
            /** Format: uint64 */
            idle_ttl_ms?: number;
            image?: string;
            /** Format: uint64 */
            keep_stopped_ms?: number;
            labels: {
                [key: string]: string;
            };
            machine?: components["schemas"]["Machine"];
            /** Format: uint64 */
            memory_mib?: number;
            name: string;
            namespace: string;
            on_idle?: components["schemas"]["OnIdle"];
            ready?: string;
            /** Format: uint64 */
            ready_timeout_ms?: number;
            /** @description Another for each time that the template was put. */
            revision: string;
            /** Format: uint64 */
            scratch_bytes?: number;
            start?: string;
            /** Format: uint64 */
            ttl_ms?: number;
            user?: string;
            /** Format: uint64 */
            warm: number;
            /** @description Why the last one did not become ready, while none has since. */
            warm_failure?: string;
            /**
             * Format: uint64
             * @description How many are ready now.
             */
            warm_ready: number;
            workdir?: string;
        };
        /** @description All templates that a key reaches. */
        TemplateList: {
            templates: components["schemas"]["Template"][];
        };
        /** @description An entry of a timeline. */
        TimelineEntry: {
            /**
             * Format: uint64
             * @description The host's time, in milliseconds since 1970; absent for `problem`.
             */
            at_ms?: number;
            /**
             * @description It went wrong: a session that ended without success, an end for want of memory, a refused connection, a run that
             *     raised, a sandbox that was lost, a damaged log.
             */
            failed?: boolean;
            /** @description The position after this entry, for `after`. */
            place?: string;
            /** @description One line for people. Output has none. */
            summary?: string;
        } & ({
            command: string;
            /** @constant */
            kind: "started";
            session: string;
        } | {
            base64?: string;
            /** @constant */
            kind: "output";
            /**
             * Format: uint64
             * @description The offset of the first byte in the session's output.
             */
            offset: number;
            session: string;
            /** @description `stdout`, `stderr` or `terminal`. */
            stream: string;
            text?: string;
        } | {
            base64?: string;
            /** @constant */
            kind: "input";
            /**
             * Format: uint64
             * @description Where the output of its terminal, or its stdout, was by then.
             */
            output_offset: number;
            session: string;
            text?: string;
        } | {
            /** Format: uint64 */
            from: number;
            /** @constant */
            kind: "gap";
            session: string;
            stream: string;
            /** Format: uint64 */
            to: number;
        } | {
            /** Format: uint16 */
            columns: number;
            /** @constant */
            kind: "resized";
            /** Format: uint16 */
            rows: number;
            session: string;
        } | {
            /**
             * Format: int32
             * @description The exit code as a shell reports it.
             */
            exit_code: number;
            /** @constant */
            kind: "exited";
            /** @description `exited`, `signaled`, `killed`, `timed_out`, `out_of_memory`, `agent_stopping` or `spawn_failed`. */
            reason: string;
            session: string;
        } | {
            /** Format: uint64 */
            bytes: number;
            /** @constant */
            kind: "damaged";
        } | {
            cause?: string;
            /** @description A kind of the stream of events. */
            event: string;
            /** @constant */
            kind: "lifecycle";
            reason?: string;
            session?: string;
        } | {
            context?: string;
            /** Format: uint64 */
            duration_us?: number;
            error?: string;
            /** @constant */
            kind: "run";
            notebook?: string;
            /** @description How it ended; absent of one that begins. */
            result?: string;
            /**
             * Format: uint64
             * @description The number of the run in its notebook or context.
             */
            run: number;
        } | {
            /** @description What the audit log has of it, such as `host`, `port`, `rule` and `why`. */
            facts: {
                [key: string]: unknown;
            };
            /** @constant */
            kind: "egress";
            /** @description `egress.name`, `egress.connection`, `egress.secret` or `egress.ended`. */
            operation: string;
            /** @description `ok`, `refused` or `failed`. */
            outcome: string;
        } | {
            artifact: string;
            /** @constant */
            kind: "file";
            name: string;
            path?: string;
            /** Format: uint64 */
            size: number;
        } | {
            /**
             * Format: double
             * @description The mean of the step, where 100 is one CPU.
             */
            cpu_percent?: number;
            /** @constant */
            kind: "metrics";
            /**
             * Format: uint64
             * @description The mean of the step.
             */
            memory_bytes?: number;
            /** Format: uint64 */
            memory_bytes_max?: number;
        } | {
            /** @constant */
            kind: "unknown";
            of: string;
            why: string;
        } | {
            /** @constant */
            kind: "problem";
            problem: components["schemas"]["Problem"];
        });
        /**
         * @description - `started`: A session began.
         *     - `output`: Output of a session.
         *     - `input`: Something was typed into a session, or written to its stdin, in a sandbox that records it.
         *     - `gap`: Output of a session that is not in the log.
         *     - `resized`: The terminal of a session has another size.
         *     - `exited`: A session ended.
         *     - `damaged`: Bytes of the log's files are damaged here.
         *     - `lifecycle`: Something happened to the sandbox: a row of the table of events.
         *     - `run`: Code began or ended: runs of notebooks, and of all contexts with `programs` in `[events]`.
         *     - `egress`: A decision about what the sandbox may reach, from the audit log.
         *     - `file`: An artifact was kept.
         *     - `metrics`: What the sandbox used in a step of time.
         *     - `unknown`: Entries of a kind are not known, and why.
         * @enum {string}
         */
        TimelineKind: "started" | "output" | "input" | "gap" | "resized" | "exited" | "damaged" | "lifecycle" | "run" | "egress" | "file" | "metrics" | "unknown";
        /** @description A page of a timeline. */
        TimelinePage: {
            entries: components["schemas"]["TimelineEntry"][];
            /** @description Where the next page begins, if there are more entries yet. */
            next?: string;
        };
        /** @description Resource use of a session or a context, with all that it started. */
        TreeUsageShape: {
            /** Format: uint64 */
            cpu_us: number;
            /**
             * @description Whether the kernel counts it in a control group; otherwise it is a sum over the live
             *     processes.
             */
            grouped: boolean;
            /** Format: uint64 */
            memory_bytes: number;
            /** Format: uint64 */
            memory_bytes_peak?: number;
            /** Format: uint32 */
            processes: number;
            /** Format: uint64 */
            read_bytes?: number;
            /** Format: uint64 */
            written_bytes?: number;
        };
        /** @description A node that did not answer. */
        UnansweredNode: {
            node: string;
            why: string;
        };
        Unavailable: {
            name: string;
            reason: string;
        };
        UnpackFilesQuery: {
            /** @description Give entries the owners named in the archive. */
            owners?: boolean;
            /** @description Make the directory and its parents if they are missing. */
            parents?: boolean;
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
        };
        /** @description Resource use of a program and the children that it waited for, as counted by the kernel. */
        Usage: {
            /** Format: uint64 */
            block_reads: number;
            /** Format: uint64 */
            block_writes: number;
            /**
             * Format: uint64
             * @description Peak memory of everything that it started, if the host counts it.
             */
            memory_bytes_peak?: number;
            /** Format: uint64 */
            resident_bytes_max: number;
            /** Format: uint64 */
            system_us: number;
            /** Format: uint64 */
            user_us: number;
        };
        /** @description An amount of use. */
        Usage2: {
            /** Format: double */
            cpu_seconds: number;
            /** Format: uint64 */
            egress_received_bytes: number;
            /**
             * Format: uint64
             * @description To the outside.
             */
            egress_sent_bytes: number;
            /**
             * Format: double
             * @description Used memory times time.
             */
            gib_seconds: number;
            /**
             * Format: uint64
             * @description From block devices.
             */
            read_bytes: number;
            /**
             * Format: double
             * @description How long sandboxes were there, one after the other.
             */
            seconds: number;
            /** Format: uint64 */
            written_bytes: number;
        };
        /** @description What namespaces have used. */
        UsageReport: {
            /** @description By name. Those that are too many for one day are together in `(others)`. */
            namespaces: components["schemas"]["NamespaceUsage"][];
            /** @description By day, namespace, kind and name; with `programs` only. Names that are too many for one day are together in `(others)`. */
            programs?: components["schemas"]["ProgramUsage"][];
            /** @description Nodes of the fleet that did not answer: their part is missing here. Absent if all did. */
            unanswered?: components["schemas"]["UnansweredNode"][];
        };
        /** @description The sessions of a log, compared. */
        Verification: {
            /** @description In the order of their starts. */
            sessions: components["schemas"]["Comparison"][];
        };
        VerifyOutputQuery: {
            /** @description Only this session. */
            session?: string;
        };
        /** @description A directory that the server keeps. */
        Volume: {
            /** Format: uint64 */
            created_at_ms: number;
            id: string;
            name: string;
            namespace: string;
            /** @description Lets in to its content, and to nothing else. Absent in lists. */
            token?: string;
        };
        /** @description All volumes that a key reaches. */
        VolumeList: {
            volumes: components["schemas"]["Volume"][];
        };
        WaitFor: ("stopped" | "removed") | "created";
        WaitForSandboxQuery: {
            /** Format: uint64 */
            timeout_ms?: number;
            /** @description The state; `stopped` by default. */
            until?: components["schemas"]["WaitFor"];
        };
        WaitForSessionQuery: {
            /** Format: uint64 */
            timeout_ms?: number;
        };
        /** @description Whether a program has ended, and how. */
        Waited: {
            /** @description How it ended; absent while it runs, or if it ended with its sandbox. */
            exit?: components["schemas"]["Exit"];
            running: boolean;
            /** @description What became of the sandbox that it ended with. */
            sandbox?: string;
        };
        WatchFilesQuery: {
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
            /** @description Also watch everything below it. */
            recursive?: boolean;
        };
        WriteFileQuery: {
            /** @description Append to the file. Not with `offset`. */
            append?: boolean;
            /** @description Refuse to write an existing file. Not with `append`, nor with an `offset` other than 0. */
            create_only?: boolean;
            /**
             * Format: uint64
             * @description Write from this byte on, which must not be past the end of the file. 0 starts the file
             *     again.
             */
            offset?: number;
            /** @description Make missing parent directories. */
            parents?: boolean;
            /** @description The absolute path. */
            path?: string;
            /** @description The path in base64, for paths that are not UTF-8. */
            path_base64?: string;
            /** @description Octal. By default an existing file keeps its own and a new file gets 0644. */
            permissions?: string;
        };
        WriteSessionQuery: {
            /** @description End the input after the body. On a terminal this is the end-of-file key. */
            eof?: boolean;
            /**
             * Format: uint64
             * @description The input offset that the client expects.
             */
            offset?: number;
            /** @description Take the keyboard from the client that holds it. */
            take?: boolean;
            /**
             * Format: uint64
             * @description How long the program may take to receive it; 30 s by default.
             */
            timeout_ms?: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}

/** The shapes of the API, by their names in its document. */
export type Schemas = components["schemas"];

/** What each operation of the API takes and answers. */
export interface Operations {
  /** List the sandboxes. */
  list_sandboxes: {
    query?: Schemas["ListSandboxesQuery"];
    answer: Schemas["SandboxPage"];
  };
  /** Make a sandbox and start it. */
  create_sandbox: {
    body: Schemas["CreateSandbox"];
    answer: Schemas["Sandbox"];
  };
  /** One sandbox. */
  get_sandbox: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Sandbox"];
  };
  /** Change the time to live of a sandbox, or what it may reach. */
  extend_sandbox: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["ExtendSandbox"];
    answer: Schemas["Sandbox"];
  };
  /** Remove a stopped sandbox's record and logs and free its name. */
  remove_sandbox: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["RemoveSandboxQuery"];
    answer: Schemas["Sandbox"];
  };
  /** Stop a sandbox cleanly and wait for it. */
  stop_sandbox: {
    path: { namespace: string | number; name: string | number };
    body?: Schemas["StopSandbox"];
    answer: Schemas["Sandbox"];
  };
  /** End a sandbox at once. */
  kill_sandbox: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Sandbox"];
  };
  /** Wait until a sandbox reaches a state. */
  wait_for_sandbox: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["WaitForSandboxQuery"];
    answer: Schemas["Sandbox"];
  };
  /** Make copies of a running sandbox. */
  fork_sandbox: {
    path: { namespace: string | number; name: string | number };
    body?: Schemas["ForkSandbox"];
    answer: Schemas["Forks"];
  };
  /** Copy a sandbox's workspace changes back. */
  sync_workspace: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Synced"];
  };
  /** Show caps and their use. */
  get_caps: {
    query?: Schemas["GetCapsQuery"];
    answer: Schemas["CapsInfo"];
  };
  /** Run a program over a WebSocket. */
  exec_socket: {
    path: { namespace: string | number; name: string | number };
  };
  /** Run a program to its end. */
  exec: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["ExecCommand"];
    answer: Schemas["ExecResult"];
    events: Schemas["ExecEvent"];
  };
  /** Start a shell on a terminal and attach to it over a WebSocket. */
  shell_socket: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["ShellSocketQuery"];
  };
  /** Run a script to its end. */
  shell: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["ShellScript"];
    answer: Schemas["ExecResult"];
    events: Schemas["ExecEvent"];
  };
  /** Run code in a context, over a WebSocket. */
  converse_in_context: {
    path: { namespace: string | number; name: string | number; context: string | number };
  };
  /** Run code in a context. */
  run_in_context: {
    path: { namespace: string | number; name: string | number; context: string | number };
    body: Schemas["RunRequest"];
    answer: Schemas["RunResult"];
    events: Schemas["RunEvent"];
  };
  /** Run code in the default context of its language. */
  run: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["RunRequest"];
    answer: Schemas["RunResult"];
    events: Schemas["RunEvent"];
  };
  /** Interrupt a run or remove it from the queue. */
  interrupt_run: {
    path: { namespace: string | number; name: string | number; context: string | number };
    body?: Schemas["InterruptRequest"];
    answer: Schemas["Interrupted"];
  };
  /** Answer a run's request for input. */
  answer_input: {
    path: { namespace: string | number; name: string | number; context: string | number };
    body: Schemas["InputAnswer"];
    answer: void;
  };
  /** Get the signed receipt of a run of a context. */
  get_run_receipt: {
    path: { namespace: string | number; name: string | number; context: string | number };
    query?: Schemas["GetRunReceiptQuery"];
    answer: Schemas["Receipt"];
  };
  /** List the open contexts. */
  list_contexts: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["ContextList"];
  };
  /** Open a context. */
  open_context: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["OpenRequest"];
    answer: Schemas["Context"];
  };
  /** One context. */
  get_context: {
    path: { namespace: string | number; name: string | number; context: string | number };
    answer: Schemas["Context"];
  };
  /** Close a context. */
  close_context: {
    path: { namespace: string | number; name: string | number; context: string | number };
    answer: void;
  };
  /** Restart the interpreter of a context. */
  restart_context: {
    path: { namespace: string | number; name: string | number; context: string | number };
    answer: Schemas["Context"];
  };
  /** Complete code at a cursor. */
  complete_code: {
    path: { namespace: string | number; name: string | number; context: string | number };
    body: Schemas["CompleteRequest"];
    answer: Schemas["CompletionsFound"];
  };
  /** Check whether code is complete. */
  check_code: {
    path: { namespace: string | number; name: string | number; context: string | number };
    body: Schemas["CheckRequest"];
    answer: Schemas["Checked"];
  };
  /** Follow all events of a context. */
  watch_context: {
    path: { namespace: string | number; name: string | number; context: string | number };
    events: Schemas["RunEvent"];
  };
  /** Download a file. */
  read_file: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["ReadFileQuery"];
  };
  /** Write a file. */
  write_file: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["WriteFileQuery"];
    answer: Schemas["FileWritten"];
    upload: true;
  };
  /** List a directory. */
  list_files: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["ListFilesQuery"];
    answer: Schemas["FilePage"];
  };
  /** Remove a file. */
  remove_file: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["RemoveFileQuery"];
    answer: void;
  };
  /** Look up a path. */
  stat_file: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["StatFileQuery"];
    answer: Schemas["FileEntry"];
  };
  /** Make a directory. */
  make_directory: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["NewDirectory"];
    answer: void;
  };
  /** Move a file or directory within its file system. */
  move_file: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["MoveFile"];
    answer: void;
  };
  /** Watch a path for changes. */
  watch_files: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["WatchFilesQuery"];
    events: Schemas["FileChange"];
  };
  /** Download a path as a tar archive. */
  pack_files: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["PackFilesQuery"];
  };
  /** Unpack a tar archive into a directory. */
  unpack_files: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["UnpackFilesQuery"];
    answer: Schemas["ArchiveUnpacked"];
    upload: true;
  };
  /** List the sessions of a sandbox. */
  list_sessions: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["ListSessionsQuery"];
    answer: Schemas["SessionList"];
  };
  /** Start a session. */
  start_session: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["StartSession"];
    answer: Schemas["SessionInfo"];
  };
  /** One session. */
  get_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    answer: Schemas["SessionInfo"];
  };
  /** Release a session that has ended. */
  release_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    query?: Schemas["ReleaseSessionQuery"];
    answer: void;
  };
  /** Wait until a session ends. */
  wait_for_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    query?: Schemas["WaitForSessionQuery"];
    answer: Schemas["Waited"];
  };
  /** Read the output of a session from any offset. */
  read_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    query?: Schemas["ReadSessionQuery"];
    events: Schemas["OutputEvent"];
  };
  /** Send input to a session. */
  write_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    query?: Schemas["WriteSessionQuery"];
    answer: Schemas["InputTaken"];
    upload: true;
  };
  /** Resize a session's terminal. */
  resize_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    body: Schemas["Size"];
    answer: void;
  };
  /** Send a signal to a session. */
  signal_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    body: Schemas["SendSignal"];
    answer: void;
  };
  /** Attach to a session over a WebSocket. */
  attach_session: {
    path: { namespace: string | number; name: string | number; session: string | number };
    query?: Schemas["AttachSessionQuery"];
  };
  /** Get the signed receipt of a session. */
  get_receipt: {
    path: { namespace: string | number; name: string | number; session: string | number };
    answer: Schemas["Receipt"];
  };
  /** Read the log of a sandbox. */
  read_log: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["ReadLogQuery"];
    answer: Schemas["LogPage"];
    events: Schemas["LogEntry"];
  };
  /** Read everything that a sandbox did, in the order of time. */
  read_timeline: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["ReadTimelineQuery"];
    answer: Schemas["TimelinePage"];
    events: Schemas["TimelineEntry"];
  };
  /** Compare recorded output with the agent's digests. */
  verify_output: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["VerifyOutputQuery"];
    answer: Schemas["Verification"];
  };
  /** Read or follow events. */
  list_events: {
    query?: Schemas["ListEventsQuery"];
    answer: Schemas["EventPage"];
    events: Schemas["EventInfo"];
  };
  /** List the forwarded ports of a sandbox. */
  list_ports: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["ForwardedPorts"];
  };
  /** Forward a port of this host. */
  forward_port: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["ForwardPort"];
    answer: Schemas["ForwardedPort"];
  };
  /** End a forward and its connections. */
  close_port: {
    path: { namespace: string | number; name: string | number; forward: string | number };
    answer: void;
  };
  /** Connect to a port inside over a WebSocket. */
  connect_port: {
    path: { namespace: string | number; name: string | number; port: string | number };
  };
  /** List the links to ports of a sandbox. */
  list_previews: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["PreviewList"];
  };
  /** Make a link to a port. */
  create_preview: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["CreatePreview"];
    answer: Schemas["CreatedPreview"];
  };
  /** Take a link back. */
  remove_preview: {
    path: { namespace: string | number; name: string | number; preview: string | number };
    answer: void;
  };
  /** List the apps of a sandbox. */
  list_apps: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["AppList"];
  };
  /** Start a web app, and wait until it answers. */
  start_app: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["StartApp"];
    answer: Schemas["AppInfo"];
  };
  /** One app. */
  get_app: {
    path: { namespace: string | number; name: string | number; app: string | number };
    answer: Schemas["AppInfo"];
  };
  /** Stop an app. */
  stop_app: {
    path: { namespace: string | number; name: string | number; app: string | number };
    answer: void;
  };
  /** Read the end of an app's log. */
  read_app_log: {
    path: { namespace: string | number; name: string | number; app: string | number };
    query?: Schemas["ReadAppLogQuery"];
    answer: Schemas["AppLog"];
  };
  /** List the apps of all sandboxes that the key covers. */
  list_all_apps: {
    query?: Schemas["ListAllAppsQuery"];
    answer: Schemas["AppList"];
  };
  /** List the notebooks. */
  list_notebooks: {
    query?: Schemas["ListNotebooksQuery"];
    answer: Schemas["NotebookList"];
  };
  /** Open a notebook. */
  open_notebook: {
    body: Schemas["OpenNotebook"];
    answer: Schemas["Notebook"];
  };
  /** Show a notebook and its saved variables. */
  get_notebook: {
    path: { namespace: string | number; notebook: string | number };
    answer: Schemas["Notebook"];
  };
  /** Remove a notebook. */
  remove_notebook: {
    path: { namespace: string | number; notebook: string | number };
    answer: void;
  };
  /** Run code in a notebook. */
  run_in_notebook: {
    path: { namespace: string | number; notebook: string | number };
    body: Schemas["RunRequest"];
    answer: Schemas["RunResult"];
    events: Schemas["RunEvent"];
  };
  /** Interrupt the current run of a notebook. */
  interrupt_notebook: {
    path: { namespace: string | number; notebook: string | number };
    body?: Schemas["InterruptRequest"];
    answer: Schemas["Interrupted"];
  };
  /** Save a notebook's variables and wait for it. */
  save_notebook: {
    path: { namespace: string | number; notebook: string | number };
    answer: Schemas["Notebook"];
  };
  /** Discard all variables of a notebook. */
  reset_notebook: {
    path: { namespace: string | number; notebook: string | number };
    answer: void;
  };
  /** Discard saved variables that cannot be loaded. */
  forget_variables: {
    path: { namespace: string | number; notebook: string | number };
    body: Schemas["ForgetRequest"];
    answer: void;
  };
  /** Show the statistics of a notebook. */
  notebook_stats: {
    path: { namespace: string | number; notebook: string | number };
    answer: Schemas["Stats"];
  };
  /** Discard the compiled code that a notebook's interpreter caches. */
  clear_cache: {
    path: { namespace: string | number; notebook: string | number };
    answer: void;
  };
  /** List the runs of a notebook, newest first. */
  notebook_history: {
    path: { namespace: string | number; notebook: string | number };
    query?: Schemas["NotebookHistoryQuery"];
    answer: Schemas["History"];
  };
  /** List the runs of all notebooks, newest first. */
  history: {
    query?: Schemas["HistoryQuery"];
    answer: Schemas["History"];
  };
  /** List artifacts. */
  list_artifacts: {
    query?: Schemas["ListArtifactsQuery"];
    answer: Schemas["ArtifactPage"];
  };
  /** Remove many artifacts. */
  remove_artifacts: {
    query?: Schemas["RemoveArtifactsQuery"];
    answer: Schemas["Removed"];
  };
  /** One artifact. */
  get_artifact: {
    path: { id: string | number };
    answer: Schemas["KeptArtifact"];
  };
  /** Remove an artifact. */
  remove_artifact: {
    path: { id: string | number };
    answer: Schemas["KeptArtifact"];
  };
  /** Download an artifact. */
  read_artifact: {
    path: { id: string | number };
  };
  /** Keep a file of a sandbox. */
  keep_artifact: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["KeepArtifact"];
    answer: Schemas["KeptArtifact"];
  };
  /** Run a command and keep the files that it makes. */
  render: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["RenderCommand"];
    answer: Schemas["RenderResult"];
    events: Schemas["RenderEvent"];
  };
  /** List the images of this host. */
  list_images: {
    answer: Schemas["ImageList"];
  };
  /** Pull an image from its registry and wait for it. */
  pull_image: {
    body: Schemas["PullImage"];
    answer: Schemas["Image"];
  };
  /** List the pulls in progress. */
  list_pulls: {
    answer: Schemas["PullList"];
  };
  /** Make an image of a running sandbox. */
  commit_sandbox: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["CommitSandbox"];
    answer: Schemas["Image"];
  };
  /** Show one image by its digest. */
  get_image: {
    path: { digest: string | number };
    answer: Schemas["Image"];
  };
  /** Remove an image with all its names. */
  remove_image: {
    path: { digest: string | number };
    answer: Schemas["Image"];
  };
  /** Pause a sandbox. */
  pause_sandbox: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Sandbox"];
  };
  /** Resume a paused sandbox and correct its clock. */
  resume_sandbox: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Sandbox"];
  };
  /** Take a snapshot of a running sandbox. */
  take_snapshot: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["TakeSnapshot"];
    answer: Schemas["Snapshot"];
  };
  /** List the snapshots. */
  list_snapshots: {
    query?: Schemas["ListSnapshotsQuery"];
    answer: Schemas["SnapshotList"];
  };
  /** One snapshot. */
  get_snapshot: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Snapshot"];
  };
  /** Remove a snapshot. */
  remove_snapshot: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Snapshot"];
  };
  /** Download a snapshot. */
  export_snapshot: {
    path: { namespace: string | number; name: string | number };
  };
  /** Upload a snapshot. */
  import_snapshot: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Snapshot"];
    upload: true;
  };
  /** Write a snapshot to a bucket. */
  export_snapshot_to_bucket: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["ExportToBucket"];
    answer: Schemas["Exported"];
  };
  /** Read a snapshot from a bucket. */
  import_snapshot_from_bucket: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["ImportFromBucket"];
    answer: Schemas["Snapshot"];
  };
  /** One template. */
  get_template: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Template"];
  };
  /** Keep a template, in the place of one with its name. */
  put_template: {
    path: { namespace: string | number; name: string | number };
    body: Schemas["PutTemplate"];
    answer: Schemas["Template"];
  };
  /** Remove a template. */
  remove_template: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Template"];
  };
  /** List the templates. */
  list_templates: {
    query?: Schemas["ListTemplatesQuery"];
    answer: Schemas["TemplateList"];
  };
  /** List the volumes. */
  list_volumes: {
    query?: Schemas["ListVolumesQuery"];
    answer: Schemas["VolumeList"];
  };
  /** Make a volume. */
  create_volume: {
    body: Schemas["CreateVolume"];
    answer: Schemas["Volume"];
  };
  /** One volume, with the token of its content. */
  get_volume: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Volume"];
  };
  /** Remove a volume and its files. */
  remove_volume: {
    path: { namespace: string | number; name: string | number };
    answer: void;
  };
  /** Read the metrics of a sandbox. */
  get_metrics: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["GetMetricsQuery"];
    answer: Schemas["MetricsAnswer"];
  };
  /** Follow the metrics of a sandbox. */
  follow_metrics: {
    path: { namespace: string | number; name: string | number };
    query?: Schemas["FollowMetricsQuery"];
    events: Schemas["MetricsEvent"];
  };
  /** Show what a session and all that it started use. */
  get_session_usage: {
    path: { namespace: string | number; name: string | number; session: string | number };
    answer: Schemas["TreeUsageShape"];
  };
  /** Show what a context's interpreter and all that it started use. */
  get_context_usage: {
    path: { namespace: string | number; name: string | number; context: string | number };
    answer: Schemas["TreeUsageShape"];
  };
  /** Show what namespaces have used. */
  get_usage: {
    query?: Schemas["GetUsageQuery"];
    answer: Schemas["UsageReport"];
  };
  /** Show what a sandbox has used since it was created. */
  get_sandbox_usage: {
    path: { namespace: string | number; name: string | number };
    answer: Schemas["Usage2"];
  };
  /** List API keys. */
  list_keys: {
    query?: Schemas["ListKeysQuery"];
    answer: Schemas["KeyList"];
  };
  /** Issue an API key. */
  create_key: {
    body: Schemas["CreateKey"];
    answer: Schemas["CreatedKey"];
  };
  /** Revoke an API key. */
  revoke_key: {
    path: { key: string | number };
    answer: void;
  };
  /** Read the audit log. */
  list_audit: {
    query?: Schemas["ListAuditQuery"];
    answer: Schemas["AuditPage"];
  };
  /** List the nodes of the fleet. */
  list_nodes: {
    answer: Schemas["NodeList"];
  };
  /** One node of the fleet. */
  get_node: {
    path: { node: string | number };
    answer: Schemas["NodeInfo"];
  };
  /** Say whether a node takes sandboxes. */
  mark_node: {
    path: { node: string | number };
    body: Schemas["MarkNode"];
    answer: Schemas["NodeInfo"];
  };
  /** Check whether the server is running. */
  livez: {
    answer: Schemas["Health"];
  };
  /** Check whether the server accepts calls. */
  readyz: {
    answer: Schemas["Health"];
  };
}
