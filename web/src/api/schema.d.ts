// Generated from openapi.json by `npm run types`. Do not edit.

export interface paths {
    "/api/v1/alerts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Alerts
         * @description Alerts, those that began last first, with the bell's numbers.
         */
        get: operations["list_alerts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts/{alert}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Alert
         * @description One alert with its evidence and what became of its notifications.
         */
        get: operations["get_alert"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/alerts/{alert}/acknowledge": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Acknowledge Alert
         * @description Say that somebody has seen it: it is not sent again, and the bell no longer counts it. Who was first stays.
         */
        post: operations["acknowledge_alert"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/channels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Channels
         * @description Every channel, oldest first, and the kinds there are.
         */
        get: operations["list_channels"];
        put?: never;
        /**
         * Add Channel
         * @description Make a channel; it is used from the next alert on.
         */
        post: operations["add_channel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/channels/{channel}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Change Channel
         * @description Change a channel; secrets that are left out stay as they are.
         */
        put: operations["change_channel"];
        post?: never;
        /**
         * Delete Channel
         * @description Delete a channel with its secrets; what waits to be sent there is given up.
         */
        delete: operations["delete_channel"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/channels/{channel}/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Test Channel
         * @description Send a message that says it is a test, now.
         */
        post: operations["test_channel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/compare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Compare
         * @description What two to eight runs are like beside each other: fairness, quality, cost, stability, numerics, a verdict.
         */
        get: operations["compare"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/compare/panels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Compare Panels
         * @description The panels that have something to show of these runs, in the order of the page.
         */
        get: operations["list_compare_panels"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/compare/panels/{panel}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Compare Panel
         * @description A panel whole: skeleton and its first fill, whose `run` is the report's `key`.
         */
        get: operations["get_compare_panel"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/compare/panels/{panel}/table": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Compare Panel Table
         * @description The numbers of a panel, for "Show as table".
         */
        get: operations["get_compare_panel_table"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/compare/report.html": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export Compare Html
         * @description The report with its figures and tables as one file that needs no network and no server.
         */
        get: operations["export_compare_html"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/compare/report.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export Compare Json
         * @description The report as a file.
         */
        get: operations["export_compare_json"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/comparisons": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Comparisons
         * @description Every saved comparison, the last changed first.
         */
        get: operations["list_comparisons"];
        put?: never;
        /**
         * Save Comparison
         * @description Give a comparison a name, and an address that stays.
         */
        post: operations["save_comparison"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/comparisons/{comparison}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Comparison
         * @description One saved comparison, with what became of its runs.
         */
        get: operations["get_comparison"];
        /**
         * Change Comparison
         * @description Replace name, runs and options. Runs that it had may be deleted ones, new ones must be there.
         */
        put: operations["change_comparison"];
        post?: never;
        /**
         * Delete Comparison
         * @description Forget a saved comparison; its runs stay.
         */
        delete: operations["delete_comparison"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Rules
         * @description Every rule, by name, with what it is doing.
         */
        get: operations["list_rules"];
        put?: never;
        /**
         * Add Rule
         * @description Make a rule; its id must be free.
         */
        post: operations["add_rule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules/{rule}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Change Rule
         * @description Change a rule. What it fires is resolved where it judges otherwise now, and judged anew from the next step on.
         */
        put: operations["change_rule"];
        post?: never;
        /**
         * Delete Rule
         * @description Delete a rule: what it fires is resolved, what it found stays in the history.
         */
        delete: operations["delete_rule"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules/backtest": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Backtest Rule
         * @description When a rule would have fired on stored runs; nothing is kept or sent.
         */
        post: operations["backtest_rule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check Rule
         * @description A rule in words, or what is wrong with it by field.
         */
        post: operations["check_rule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules/presets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Presets
         * @description Rules ready to be taken over, each with its threshold and the reason for it.
         */
        get: operations["list_presets"];
        put?: never;
        /**
         * Take Over Presets
         * @description Make rules of presets; returns those that were made.
         */
        post: operations["take_over_presets"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules/vocabulary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Rule Vocabulary
         * @description What rules can be made of: derived metrics, the series of the newest runs, aggregations.
         */
        get: operations["get_rule_vocabulary"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rules/yaml": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export Rules
         * @description All rules as YAML, for a file that is kept beside the code.
         */
        get: operations["export_rules"];
        put?: never;
        /**
         * Import Rules
         * @description Make and change rules as a text says; rules that it does not name stay. With any problem nothing is done.
         */
        post: operations["import_rules"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Runs
         * @description Runs that fit the filters, live ones first, then the newest.
         */
        get: operations["list_runs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Run
         * @description One run: state, verdict, the numbers of its row and its sentence.
         */
        get: operations["get_run"];
        put?: never;
        post?: never;
        /**
         * Delete Run
         * @description Delete a run with all its data; its agents are told to stop sending it.
         */
        delete: operations["delete_run"];
        options?: never;
        head?: never;
        /**
         * Change Run
         * @description Rename a run or replace its tags; what is not given stays.
         */
        patch: operations["change_run"];
        trace?: never;
    };
    "/api/v1/runs/{run}/alerts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Alert Bands
         * @description Where rules fired on a run, the newest 500, to be laid over its charts.
         */
        get: operations["list_alert_bands"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/candidates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Candidates
         * @description Runs to compare this one with, the nearest first: its baseline, then those of its name, tags and project.
         */
        get: operations["list_candidates"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/config": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Config
         * @description What the run was started with: configuration, environment, precision, memory.
         */
        get: operations["get_config"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Events
         * @description Events in the order they happened, or newest first.
         */
        get: operations["list_events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export Run
         * @description Every recorded row of a run.
         */
        get: operations["export_run"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/layers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Layers
         * @description Every layer whose gradient was sketched, with its modules, in forward order; `stat` chooses what is said of
         *     them.
         */
        get: operations["get_layers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/panels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Panels
         * @description The panels that have something to show for this run, in the order of the page.
         */
        get: operations["list_panels"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/panels/{panel}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Panel
         * @description A panel whole: skeleton and its first fill.
         */
        get: operations["get_panel"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/panels/{panel}/table": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Panel Table
         * @description The numbers of a panel, for "Show as table".
         */
        get: operations["get_panel_table"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/ranks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Ranks
         * @description What is said of a run's ranks. A run of one process has one.
         */
        get: operations["get_ranks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/rug": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Rug
         * @description Every event of a run or of a part of it on one line, close ones together; null before the first step.
         */
        get: operations["get_rug"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Series
         * @description Every series of a run.
         */
        get: operations["list_series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/runs/{run}/strip": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get Strip
         * @description A lane of the health strip over a run or a part of it; null before the first step, and the lower one where no
         *     layer was sketched.
         */
        get: operations["get_strip"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/server": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Server Info
         * @description Version, address and the three lines of code to begin with.
         */
        get: operations["server_info"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Current Session
         * @description Until when this browser is signed in; a bearer token has no end and answers 0.
         */
        get: operations["current_session"];
        put?: never;
        /**
         * Sign In
         * @description Exchange the code of a sign-in link for a session cookie.
         */
        post: operations["sign_in"];
        /**
         * Sign Out
         * @description End this browser's session.
         */
        delete: operations["sign_out"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create Sign In Link
         * @description A new single-use sign-in link.
         */
        post: operations["create_sign_in_link"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/silences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Silences
         * @description The silences that hold now, oldest first.
         */
        get: operations["list_silences"];
        put?: never;
        /**
         * Add Silence
         * @description Send nothing for what matches, until it ends or is lifted; the pages go on showing it.
         */
        post: operations["add_silence"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/silences/{silence}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Lift Silence
         * @description End a silence: what still goes on and was not sent because of it is sent now.
         */
        delete: operations["lift_silence"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/theme": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Theme
         * @description Colour roles for light and dark.
         */
        get: operations["theme"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Health
         * @description Whether the server can take in data right now.
         */
        get: operations["health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** AggregationItem */
        AggregationItem: {
            /**
             * Argument
             * @description Name of its argument: `quantile`; empty: it takes none.
             */
            argument: string;
            /** Default Argument */
            default_argument: number | null;
            /** Id */
            id: string;
            /** Needs Window */
            needs_window: boolean;
            /**
             * Takes Baseline
             * @description Whether it can be compared with another run.
             */
            takes_baseline: boolean;
            /** Text */
            text: string;
            /** Title */
            title: string;
            /**
             * Unit
             * @description Of the result: that of the metric, a share, a plain number, or the metric's per step or second.
             * @enum {string}
             */
            unit: "same" | "share" | "" | "per";
        };
        /**
         * Agreement
         * @description One fact over the whole run.
         */
        Agreement: {
            /** Fact */
            fact: string;
            first: components["schemas"]["Parting"] | null;
            last: components["schemas"]["Parting"] | null;
            /** Num Steps */
            num_steps: number;
            /**
             * Outcome
             * @enum {string}
             */
            outcome: "agree" | "parted" | "unknown";
            /** Stretches */
            stretches: [
                number,
                number
            ][];
        };
        /**
         * AlertBand
         * @description A stretch of a run in which a rule fired, to be laid over the charts of its metric.
         */
        AlertBand: {
            /** Alert */
            alert: string;
            /** First Step */
            first_step: number;
            /**
             * Last Step
             * @description None: it fires still.
             */
            last_step: number | null;
            /** Layer */
            layer: string;
            /** Panel */
            panel: string;
            /**
             * Severity
             * @enum {string}
             */
            severity: "info" | "warning" | "critical";
            /** Text */
            text: string;
        };
        /** AlertBands */
        AlertBands: {
            /** Bands */
            bands: components["schemas"]["AlertBand"][];
        };
        /**
         * AlertCounts
         * @description For the bell.
         */
        AlertCounts: {
            /**
             * Critical
             * @description Firing, critical and not acknowledged.
             */
            critical: number;
            /** Firing */
            firing: number;
            /** Unacknowledged */
            unacknowledged: number;
        };
        /**
         * AlertItem
         * @description One episode of one rule on one run.
         */
        AlertItem: {
            /** Acknowledged By */
            acknowledged_by: string;
            /** Acknowledged Us */
            acknowledged_us: number | null;
            /** Fired Step */
            fired_step: number | null;
            /** Fired Us */
            fired_us: number | null;
            /** First Step */
            first_step: number;
            /** First Us */
            first_us: number;
            /** Id */
            id: string;
            /** Labels */
            labels: {
                [key: string]: string;
            };
            /** Last Step */
            last_step: number;
            /** Last Us */
            last_us: number;
            /** Layer */
            layer: string;
            /**
             * Link
             * @description Path and query within the web app: the run, zoomed on the evidence, the layer chosen.
             */
            link: string;
            /** Metric */
            metric: string;
            /**
             * Muted By
             * @description Why nothing was sent, in words; empty: it was, or there is no channel.
             */
            muted_by: string;
            /** Notices */
            notices: components["schemas"]["NoticeItem"][];
            /**
             * Panel
             * @description Id of the panel that shows its metric on the run's Overview; empty: none does.
             */
            panel: string;
            /** Project */
            project: string;
            /** Rank */
            rank: number | null;
            /**
             * Reason
             * @description Why the rule asks for this.
             */
            reason: string;
            /** Resolution */
            resolution: string;
            /** Resolved Step */
            resolved_step: number | null;
            /** Resolved Us */
            resolved_us: number | null;
            /** Rule */
            rule: string;
            /** Rule Name */
            rule_name: string;
            /** Run */
            run: string;
            /** Run Name */
            run_name: string;
            /** Runbook */
            runbook: string;
            /**
             * Severity
             * @enum {string}
             */
            severity: "info" | "warning" | "critical";
            /** @description What keeps it quiet now, though it may have been sent before; of several the one that ends last. */
            silence: components["schemas"]["SilenceItem"] | null;
            /** Spark Steps */
            spark_steps: number[];
            /**
             * Spark Values
             * @description The evidence: what was compared, around the firing.
             */
            spark_values: (number | ("NaN" | "Infinity" | "-Infinity") | null)[];
            /**
             * State
             * @enum {string}
             */
            state: "pending" | "firing" | "resolved" | "no_data" | "error";
            /**
             * Text
             * @description The sentence: "block.3.mlp.fc2: NaN/Inf rate 4.1% > 1% for 200 steps".
             */
            text: string;
            /** Threshold */
            threshold: number | ("NaN" | "Infinity" | "-Infinity") | null;
            /** Threshold Text */
            threshold_text: string;
            /** Value */
            value: number | ("NaN" | "Infinity" | "-Infinity") | null;
            /**
             * Value Text
             * @description As shown: `4.1%`, `2⁻³`; empty where the rule only asks whether something is so.
             */
            value_text: string;
            /** Worst */
            worst: number | ("NaN" | "Infinity" | "-Infinity") | null;
        };
        /** AlertList */
        AlertList: {
            /** Alerts */
            alerts: components["schemas"]["AlertItem"][];
            counts: components["schemas"]["AlertCounts"];
            /** Next Cursor */
            next_cursor?: string | null;
        };
        /**
         * Backtest
         * @description When a rule would have fired.
         */
        Backtest: {
            /**
             * Noisy
             * @description A warning where it would have fired too often or flapped; empty: none.
             */
            noisy: string;
            /** Runs */
            runs: components["schemas"]["BacktestRun"][];
            /**
             * Summary
             * @description "would have fired 2 times in 3 runs".
             */
            summary: string;
            /** Took Ms */
            took_ms: number;
            /**
             * Value Unit
             * @description `flag`: the numbers only say whether something is so.
             */
            value_unit: string;
        };
        /** BacktestBody */
        BacktestBody: {
            rule: components["schemas"]["Rule"];
            /**
             * Runs
             * @description Ids; empty: the newest that the rule's scope holds, at most 5.
             */
            runs?: string[];
            /**
             * Width Px
             * @default 600
             */
            width_px?: number;
        };
        /** BacktestEpisode */
        BacktestEpisode: {
            /** Fired Step */
            fired_step: number;
            /** First Step */
            first_step: number;
            /** Layer */
            layer: string;
            /** Rank */
            rank: number | null;
            /** Resolved Step */
            resolved_step: number | null;
            /** Value */
            value: number | ("NaN" | "Infinity" | "-Infinity") | null;
            /** Worst */
            worst: number | ("NaN" | "Infinity" | "-Infinity") | null;
        };
        /** BacktestRun */
        BacktestRun: {
            /**
             * Episodes
             * @description At most 200; `num_episodes` counts all.
             */
            episodes: components["schemas"]["BacktestEpisode"][];
            /** First Step */
            first_step: number | null;
            /**
             * High
             * @description The compared number, thinned so that no crossing of the threshold is lost: band per bin of steps.
             */
            high: (number | ("NaN" | "Infinity" | "-Infinity") | null)[];
            /** Last Step */
            last_step: number | null;
            /** Low */
            low: (number | ("NaN" | "Infinity" | "-Infinity") | null)[];
            /**
             * Note
             * @description Why there is nothing to judge: `this run has no series "val/accuracy"`.
             */
            note: string;
            /** Num Episodes */
            num_episodes: number;
            /** Run */
            run: string;
            /** Run Name */
            run_name: string;
            /** Steps */
            steps: number[];
        };
        /**
         * Bucket
         * @description One bucket of the reduction, over all ranks and the last 200 steps.
         */
        Bucket: {
            /** Bandwidth Bytes Per S */
            bandwidth_bytes_per_s: number | null;
            /** Bucket */
            bucket: number;
            /** Dtype */
            dtype: string;
            /** Error */
            error: number | null;
            /** Layers */
            layers: string[];
            /** Num Bytes */
            num_bytes: number;
            /** Time S */
            time_s: number | null;
            /** Worst Error */
            worst_error: number | null;
            /** Worst Layer */
            worst_layer: string;
        };
        /**
         * Candidate
         * @description A run that another may be compared with; the typed API hands it out as it is.
         */
        Candidate: {
            /** Created Us */
            created_us: number;
            /** Id */
            id: string;
            /** Last Step */
            last_step: number | null;
            /** Name */
            name: string;
            /** Precision */
            precision: string;
            /** Precision Role */
            precision_role: string;
            /** Project */
            project: string;
            /** State */
            state: string;
            /** Tags */
            tags: string[];
            /**
             * Why
             * @description What makes it near: it is the baseline that the run names; of the same project and name, a common tag, or only
             *     the project; none of these.
             * @enum {string}
             */
            why: "baseline" | "name" | "tag" | "project" | "other";
        };
        /** ChannelBody */
        ChannelBody: {
            /**
             * Enabled
             * @default true
             */
            enabled?: boolean;
            /** Kind */
            kind: string;
            /** Name */
            name: string;
            /** Options */
            options?: {
                [key: string]: string;
            };
            /**
             * Secrets
             * @description Write-only. When a channel is changed, a secret that is left out stays as it is.
             */
            secrets?: {
                [key: string]: string;
            };
        };
        /** ChannelField */
        ChannelField: {
            /** Name */
            name: string;
            /** Placeholder */
            placeholder: string;
            /** Required */
            required: boolean;
            /** Secret */
            secret: boolean;
            /** Text */
            text: string;
            /** Title */
            title: string;
        };
        /** ChannelItem */
        ChannelItem: {
            /** Enabled */
            enabled: boolean;
            /** Id */
            id: string;
            /** Kind */
            kind: string;
            /** Last Error */
            last_error: string;
            /** Last Sent Us */
            last_sent_us: number | null;
            /** Name */
            name: string;
            /** Num Waiting */
            num_waiting: number;
            /** Options */
            options: {
                [key: string]: string;
            };
            /**
             * Secrets Set
             * @description Names of the secrets that are kept.
             */
            secrets_set: string[];
        };
        /**
         * ChannelKind
         * @description A kind of channel and what it asks for.
         */
        ChannelKind: {
            /** Fields */
            fields: components["schemas"]["ChannelField"][];
            /** Kind */
            kind: string;
            /** Text */
            text: string;
            /** Title */
            title: string;
        };
        /** ChannelList */
        ChannelList: {
            /** Channels */
            channels: components["schemas"]["ChannelItem"][];
            /** Kinds */
            kinds: components["schemas"]["ChannelKind"][];
        };
        /**
         * Chip
         * @description A piece of a sentence that the server words and the client only lays out.
         */
        Chip: {
            /**
             * Anchor
             * @description Id of the panel or tab it explains, for a link.
             * @default
             */
            anchor?: string;
            /**
             * Code
             * @description A name of a layer or file: shown in mono, shortened in the middle, whole in the tooltip.
             * @default false
             */
            code?: boolean;
            /**
             * Label
             * @description For a screen reader, where the text does not read well: `loss scale 2 to the 15th, 32,768`.
             * @default
             */
            label?: string;
            /**
             * Text
             * @description As shown: `scale 2¹⁵`.
             */
            text: string;
            /**
             * Tone
             * @default plain
             * @enum {string}
             */
            tone?: "plain" | "info" | "warning" | "critical" | "muted";
            /**
             * Tooltip
             * @default
             */
            tooltip?: string;
        };
        /** ClientMessage */
        ClientMessage: components["schemas"]["WatchRuns"] | components["schemas"]["WatchRun"] | components["schemas"]["WatchCompare"] | components["schemas"]["WatchAlerts"] | components["schemas"]["Unwatch"];
        /**
         * CompareCandidates
         * @description The nearest first, at most 50 of them.
         */
        CompareCandidates: {
            /** Candidates */
            candidates: components["schemas"]["Candidate"][];
            /**
             * Total
             * @description How many there are in all.
             */
            total: number;
        };
        /**
         * CompareOptions
         * @description How runs are compared; the answer's `options` say what it was.
         */
        CompareOptions: {
            /**
             * Align
             * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
             *     tokens seen, or seconds since its first step.
             * @default attempts
             * @enum {string}
             */
            align?: "attempts" | "applied" | "samples" | "tokens" | "time";
            /**
             * Metric
             * @description Series that stands for quality.
             * @default loss
             */
            metric?: string;
            /**
             * Tolerance
             * @description Relative difference that is never called one, 0..1.
             * @default 0.005
             */
            tolerance?: number;
        };
        /** ConfigEntry */
        ConfigEntry: {
            /** Key */
            key: string;
            /**
             * Note
             * @description Where a value is inferred or missing: why.
             * @default
             */
            note?: string;
            /** Value */
            value: string;
        };
        /** ConfigSection */
        ConfigSection: {
            /** Entries */
            entries: components["schemas"]["ConfigEntry"][];
            /** Title */
            title: string;
        };
        /**
         * Cost
         * @description What a member takes, and against the baseline.
         */
        Cost: {
            /** Baseline Time S */
            baseline_time_s: number | null;
            /**
             * Because
             * @description Where it is slower than the baseline, or its numbers are limited: why, in sentences.
             */
            because: string[];
            /**
             * Confounded By
             * @description Ids of fairness items that make speed or memory incomparable.
             */
            confounded_by: string[];
            /** Gradient Bytes */
            gradient_bytes: number | null;
            /**
             * Memory Of
             * @description `device` or `process`.
             */
            memory_of: string;
            /**
             * Memory Ratio
             * @description Peak against the baseline's.
             */
            memory_ratio: number | null;
            /** Optimizer State Bytes */
            optimizer_state_bytes: number | null;
            /** Parameter Bytes */
            parameter_bytes: number | null;
            /**
             * Peak Memory Bytes
             * @description Of the device where there is one, else of the process.
             */
            peak_memory_bytes: number | null;
            /** Run */
            run: string;
            /** @description Ratio of throughputs; None for the baseline. */
            speedup: components["schemas"]["Estimate"] | null;
            /** @description Median. */
            step_s: components["schemas"]["Estimate"] | null;
            /**
             * Step Spread
             * @description (95th - 5th percentile) / median of the step time.
             */
            step_spread: number | null;
            /** @description Median samples/s (tokens/s where no samples are known, steps/s where neither), warm-up left out; bootstrap. */
            throughput: components["schemas"]["Estimate"] | null;
            /** Throughput Unit */
            throughput_unit: string;
            /**
             * Time To Baseline S
             * @description Training time until it had the baseline's final level of the metric; None: not reached.
             */
            time_to_baseline_s: number | null;
            /** Warmup Steps */
            warmup_steps: number;
        };
        /**
         * DeletedProblem
         * @description Body of 410: the run was here, and somebody deleted it.
         */
        DeletedProblem: {
            /** Code */
            code: string;
            /** Deleted Us */
            deleted_us: number;
            /** Detail */
            detail: string;
            /** Name */
            name: string;
            /** Request Id */
            request_id: string;
            /** Run */
            run: string;
        };
        /**
         * Estimate
         * @description A number with its 95% interval.
         */
        Estimate: {
            /**
             * Count
             * @description Values it rests on (steps, blocks or runs, as the field says).
             * @default 0
             */
            count?: number;
            /**
             * High
             * @description None: too few values for an interval.
             */
            high?: number | null;
            /** Low */
            low?: number | null;
            /** Value */
            value: number;
        };
        /** EventItem */
        EventItem: {
            /** Attempt */
            attempt: number;
            /** Details */
            details: {
                [key: string]: unknown;
            };
            /** Id */
            id: string;
            /** Kind */
            kind: string;
            /**
             * Mark
             * @description Second channel: `▾`, `✕`, `△`, `●`.
             */
            mark: string;
            /** Rank */
            rank: number;
            /**
             * Role
             * @description Colour role of its mark on the rug.
             */
            role: string;
            /**
             * Severity
             * @enum {string}
             */
            severity: "info" | "warning" | "critical";
            /** Step */
            step: number;
            /**
             * Text
             * @description One sentence with the numbers: "Scale 65,536 → 32,768. Non-finite: block.3.mlp.fc2 and 2 more; finite: 14
             *     layers".
             */
            text: string;
            /** Time Us */
            time_us: number;
            /**
             * Title
             * @description `Skipped step`, `Scale halved`, `Loss is NaN`.
             */
            title: string;
            /** Where */
            where: string[];
        };
        /** EventKind */
        EventKind: {
            /** Count */
            count: number;
            /** Kind */
            kind: string;
            /**
             * Severity
             * @enum {string}
             */
            severity: "info" | "warning" | "critical";
            /** Title */
            title: string;
        };
        /** EventPage */
        EventPage: {
            /** Events */
            events: components["schemas"]["EventItem"][];
            /**
             * Kinds
             * @description Every kind that occurs in the range, with its count before the kind filter.
             */
            kinds: components["schemas"]["EventKind"][];
            /** Next Cursor */
            next_cursor: string | null;
            /** Total */
            total: number;
        };
        /**
         * Fairness
         * @description All of them, different ones first.
         */
        Fairness: {
            /** Items */
            items: components["schemas"]["FairnessItem"][];
            /**
             * Num Different
             * @description Without intended ones.
             */
            num_different: number;
            /** Num Same */
            num_same: number;
            /** Num Unknown */
            num_unknown: number;
        };
        /**
         * FairnessItem
         * @description One thing that runs should agree in.
         */
        FairnessItem: {
            /**
             * Confounds
             * @description What a difference here makes impossible to attribute to precision.
             */
            confounds: ("quality" | "speed" | "memory")[];
            /** Id */
            id: string;
            /**
             * Is Intended
             * @description What is being compared (precision, scaler): a difference here is no unfairness.
             * @default false
             */
            is_intended?: boolean;
            /**
             * State
             * @description `different` where any member differs from the baseline.
             * @enum {string}
             */
            state: "same" | "different" | "unknown";
            /**
             * States
             * @description By member against the baseline; the baseline's own is `same`.
             */
            states: ("same" | "different" | "unknown")[];
            /**
             * Text
             * @description What follows from it, or why it is unknown: `batch 64 against 32: speed and quality are not comparable`.
             * @default
             */
            text?: string;
            /** Title */
            title: string;
            /**
             * Values
             * @description By member, in words; `–` where not recorded.
             */
            values: string[];
        };
        /**
         * Health
         * @description The verdict on a run in one word, with the sentence behind it.
         */
        Health: {
            /**
             * Reasons
             * @description One line each, worst first; empty for a healthy run.
             */
            reasons: string[];
            /**
             * Severity
             * @enum {string}
             */
            severity: "ok" | "info" | "warning" | "critical";
            /**
             * Word
             * @enum {string}
             */
            word: "healthy" | "settling" | "unhealthy" | "failed" | "waiting" | "unknown";
        };
        /**
         * ImportResult
         * @description What importing YAML did, or would do when it was only checked.
         */
        ImportResult: {
            /** Changed */
            changed: string[];
            /** Created */
            created: string[];
            /**
             * Problems
             * @description Nothing is taken over when there is any.
             */
            problems: components["schemas"]["RuleProblem"][];
            /** Unchanged */
            unchanged: string[];
        };
        /**
         * LayerDivergence
         * @description One layer of one member against the baseline's, over the frames that both have.
         */
        LayerDivergence: {
            /** Baseline Lost Update Share */
            baseline_lost_update_share: number | null;
            /** Baseline Zero Share */
            baseline_zero_share: number | null;
            /**
             * Distance Bits
             * @description Earth mover's distance between the two exponent histograms of nonzero finite elements, in bits (log2), over the
             *     last tenth of common frames added up.
             */
            distance_bits: number | null;
            /**
             * First Step
             * @description The member's first sketched step from which it differs beyond noise and stays so; None: it does not.
             */
            first_step: number | null;
            /** Layer */
            layer: string;
            /**
             * Lost Update Share
             * @description Nonzero updates that did not change the stored weight, of the member.
             */
            lost_update_share: number | null;
            /**
             * Noise Bits
             * @description What repeats, or the first common frames, differ by.
             */
            noise_bits: number | null;
            /**
             * Norm Ratio
             * @description Member's over baseline's, there.
             */
            norm_ratio: number | null;
            /**
             * Score
             * @description Order of ranking, larger is worse.
             */
            score: number;
            /**
             * Underflow Share
             * @description As everywhere, of the member.
             */
            underflow_share: number | null;
            /**
             * What
             * @description In which respect it parted: `zeros`, `distance`, `norm`, `nonfinite`, `updates`; empty where it did not.
             */
            what: string;
            /**
             * Would Flush Share
             * @description What FP16 would flush of the baseline's gradient at the member's scale: a lower bound.
             */
            would_flush_share: number | null;
            /** Zero Share */
            zero_share: number | null;
        };
        /**
         * LayerNode
         * @description A node of the layer tree, in preorder: a module, or a parameter tensor (a leaf).
         */
        LayerNode: {
            /**
             * Depth
             * @description 0 for the children of the root.
             */
            depth: number;
            /**
             * Elements
             * @description Elements below it.
             */
            elements: number;
            /**
             * Kind
             * @enum {string}
             */
            kind: "module" | "parameter";
            /**
             * Label
             * @description Its own part of the name.
             */
            label: string;
            /**
             * Name
             * @description Full dotted name; the root module's is empty.
             */
            name: string;
            /**
             * Note
             * @description Why there is no value: `no gradient in any measured step`.
             * @default
             */
            note?: string;
            /**
             * Open
             * @description Whether a module is open when the tree is first seen; what lies below a closed one is not visible.
             * @default false
             */
            open?: boolean;
            /**
             * Severity
             * @default ok
             * @enum {string}
             */
            severity?: "ok" | "info" | "warning" | "critical" | "unknown";
            /**
             * Shape
             * @description Of a parameter.
             * @default []
             */
            shape?: number[];
            /**
             * Spark
             * @description base64 of uint8: class id (see `LayerTree.classes`) per bin of the window.
             * @default
             */
            spark?: string;
            /**
             * Spark Heights
             * @description base64 of uint8 per bin: 0..255.
             * @default
             */
            spark_heights?: string;
            /**
             * Worst
             * @description Worst value of the statistic in the window, in words: `12.4%`, `-1 bits`, `–`.
             */
            worst: string;
            /**
             * Worst Step
             * @description Where that was.
             */
            worst_step?: number | null;
        };
        /** LayerStat */
        LayerStat: {
            /**
             * Id
             * @enum {string}
             */
            id: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
            /**
             * Text
             * @description One sentence: what the number is.
             */
            text: string;
            /** Title */
            title: string;
        };
        /**
         * LayerTree
         * @description Every layer whose gradient was sketched, with its modules, in forward order.
         */
        LayerTree: {
            /** Classes */
            classes: components["schemas"]["StripClass"][];
            /**
             * Default Gradient
             * @description How the window chart shows it where that is left to the run: as FP16 sees it where it computes in FP16.
             * @enum {string}
             */
            default_gradient: "seen" | "true";
            /**
             * Default Layer
             * @description The leaf with the worst underflow; what the window chart shows where no layer is chosen.
             */
            default_layer: string;
            /**
             * Empty
             * @description Why there are no nodes and what to do: `first sketch at step 50`.
             * @default
             */
            empty?: string;
            /** First Step */
            first_step: number | null;
            /** Last Step */
            last_step: number | null;
            /** Nodes */
            nodes: components["schemas"]["LayerNode"][];
            /** Num Frames */
            num_frames: number;
            /**
             * Precision Note
             * @description Which of the underflow numbers this run's is: measured or predicted, and at what scale.
             * @default
             */
            precision_note?: string;
            /** Stat */
            stat: string;
            /** Stat Title */
            stat_title: string;
            /**
             * Stats
             * @description What can be chosen, in order.
             */
            stats: components["schemas"]["LayerStat"][];
        };
        /**
         * LiveAlerts
         * @description Live message, to every page: the bell's numbers, and what changed since the last one.
         */
        LiveAlerts: {
            /** Changed */
            changed: components["schemas"]["AlertItem"][];
            counts: components["schemas"]["AlertCounts"];
            /**
             * Silences
             * @description Ids of those that hold: where they differ from those before, alerts and silences are to be read anew.
             */
            silences: string[];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "alerts";
        };
        /** LiveCompare */
        LiveCompare: {
            report: components["schemas"]["Report"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "compare";
        };
        /** LiveDeleted */
        LiveDeleted: {
            /** Deleted Us */
            deleted_us: number;
            /** Name */
            name: string;
            /** Run */
            run: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "deleted";
        };
        /**
         * LiveError
         * @description Something about the request, or one panel that failed; the rest goes on.
         */
        LiveError: {
            /** Code */
            code: string;
            /** Detail */
            detail: string;
            /**
             * Panel
             * @default
             */
            panel?: string;
            /** Request Id */
            request_id: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "error";
        };
        /** LivePanels */
        LivePanels: {
            /**
             * Fills
             * @description Their `run` is a run's id, or the key of a comparison's report.
             */
            fills: components["schemas"]["PanelFill"][];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "panels";
        };
        /**
         * LiveRanks
         * @description To who watches a run with `ranks`.
         */
        LiveRanks: {
            report: components["schemas"]["RanksReport"];
            /** Run */
            run: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "ranks";
        };
        /** LiveRun */
        LiveRun: {
            /**
             * Ahead
             * @description Where the training is by now, in words, while what is shown is behind it.
             * @default null
             */
            ahead?: string | null;
            /**
             * Catching Up S
             * @description Seconds of backlog the agent is still sending, or None when it is current.
             */
            catching_up_s: number | null;
            /** Num Events */
            num_events: number;
            /**
             * Num Frames
             * @description Sketched steps so far; when it changes the layer tree is worth fetching again.
             * @default 0
             */
            num_frames?: number;
            /** @description At the width asked for and over the whole run. */
            strip: components["schemas"]["Strip"] | null;
            summary: components["schemas"]["RunSummary"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "run";
            /**
             * @description The lower lane, of the same width.
             * @default null
             */
            underflow?: components["schemas"]["Strip"] | null;
        };
        /** LiveRuns */
        LiveRuns: {
            list: components["schemas"]["RunList"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "runs";
        };
        /**
         * Member
         * @description One run of a comparison.
         */
        Member: {
            /**
             * Config
             * @description What tells it from the others: keys in which members differ.
             */
            config?: {
                [key: string]: string;
            };
            /**
             * Group
             * @description Runs that differ in nothing but the seed are repeats of one configuration and have the same number; the
             *     baseline's is 0.
             */
            group: number;
            /** Last Step */
            last_step: number | null;
            /**
             * Letter
             * @description `A` for the baseline, then `B` ...
             */
            letter: string;
            /** Name */
            name: string;
            /** Precision */
            precision: string;
            /**
             * Precision Role
             * @description Colour role of its lines.
             */
            precision_role: string;
            /** Project */
            project: string;
            /** Run */
            run: string;
            /**
             * State
             * @description As in the table of runs: `live`, `finished` ...
             */
            state: string;
        };
        /**
         * MetricItem
         * @description What a rule can be about.
         */
        MetricItem: {
            /**
             * Aggregations
             * @description Ids of those that make sense for it.
             */
            aggregations: string[];
            /** Derived */
            derived: boolean;
            /** Id */
            id: string;
            /** Per Layer */
            per_layer: boolean;
            /**
             * Text
             * @description One sentence: what the number is.
             */
            text: string;
            /** Title */
            title: string;
            /** Unit */
            unit: string;
        };
        /**
         * NoticeItem
         * @description What became of one notification.
         */
        NoticeItem: {
            /** Channel */
            channel: string;
            /** Channel Name */
            channel_name: string;
            /** Created Us */
            created_us: number;
            /** Error */
            error: string;
            /**
             * Kind
             * @description `fired`, `resolved`, `repeat:1` ...
             */
            kind: string;
            /** Num Tries */
            num_tries: number;
            /** Sent Us */
            sent_us: number | null;
            /**
             * State
             * @enum {string}
             */
            state: "waiting" | "sending" | "sent" | "failed";
        };
        /**
         * Numerics
         * @description Layers of one member against the baseline's, worst first.
         */
        Numerics: {
            /**
             * First Layer
             * @description The layer that parted first; of several at one frame the last in forward order, whose gradient comes first.
             */
            first_layer: string;
            /** First Step */
            first_step: number | null;
            /**
             * Interval
             * @description Steps between them: how exactly a first step is known.
             */
            interval: number | null;
            /** Layers */
            layers: components["schemas"]["LayerDivergence"][];
            /**
             * Num Common
             * @description Layers that both have.
             */
            num_common: number;
            /**
             * Num Frames
             * @description Sketched steps that both have.
             */
            num_frames: number;
            /** Only Baseline */
            only_baseline: string[];
            /** Only Member */
            only_member: string[];
            /**
             * Reason
             * @description Why nothing can be said.
             * @default
             */
            reason?: string;
            /** Run */
            run: string;
        };
        /**
         * Options
         * @description How runs are compared; hashable, because viewers who ask for the same share one computation.
         */
        Options: {
            /**
             * Align
             * @default attempts
             * @enum {string}
             */
            align?: "attempts" | "applied" | "samples" | "tokens" | "time";
            /**
             * Metric
             * @description Series that stands for quality.
             * @default loss
             */
            metric?: string;
            /**
             * Tolerance Share
             * @description Relative difference that is never called one.
             * @default 0.005
             */
            tolerance_share?: number;
        };
        /**
         * Origin
         * @description Where a step that was not finite began.
         */
        Origin: {
            /** Attempt */
            attempt: number;
            /**
             * Kind
             * @enum {string}
             */
            kind: "backward" | "compression" | "reduction";
            /** Layers */
            layers: string[];
            /** Ranks */
            ranks: number[];
            /** Step */
            step: number;
        };
        /**
         * PanelFigure
         * @description A panel whole: the validated skeleton once, and its first fill.
         *
         *     Colours are roles: a trace carries `meta.role` (line and marker colour), a shape or annotation `name =
         *     "role:<role>"`.
         */
        PanelFigure: {
            fill: components["schemas"]["PanelFill"];
            info: components["schemas"]["PanelInfo"];
            /** Skeleton */
            skeleton: {
                [key: string]: unknown;
            };
        };
        /**
         * PanelFill
         * @description What changes from tick to tick. `data[i]` is laid over trace i of the skeleton, `layout` over its layout.
         */
        PanelFill: {
            /** Data */
            data: {
                [key: string]: unknown;
            }[];
            /**
             * Empty
             * @description Why there is nothing to draw, with what to do; the chart is then replaced by it.
             * @default
             */
            empty?: string;
            /** First Step */
            first_step: number | null;
            /**
             * Headline
             * @description The newest value in words, beside the title: `2¹⁵`.
             * @default
             */
            headline?: string;
            /**
             * Label
             * @description For role=figure: "Loss scale, run fp16-troubled, steps 0 to 12,400, now 2 to the 15th, 6 skips".
             */
            label: string;
            /** Last Step */
            last_step: number | null;
            /** Layout */
            layout: {
                [key: string]: unknown;
            };
            /** Panel */
            panel: string;
            /** Run */
            run: string;
            /**
             * Skeleton Id
             * @description The skeleton these arrays fit; another one means: fetch the panel again.
             */
            skeleton_id: string;
        };
        /** PanelInfo */
        PanelInfo: {
            /**
             * Columns
             * @description Width in the grid of 12.
             */
            columns: number;
            /**
             * Folded On Phone
             * @default false
             */
            folded_on_phone?: boolean;
            /** Height Px */
            height_px: number;
            /** Id */
            id: string;
            /** Order */
            order: number;
            /**
             * Section
             * @description `overview`, `your metrics`, `memory`, `cost`, `layers` (the Layers tab)...
             */
            section: string;
            /** Title */
            title: string;
        };
        /** PanelList */
        PanelList: {
            /** Panels */
            panels: components["schemas"]["PanelInfo"][];
        };
        /**
         * Parting
         * @description A fact in which ranks part from the others.
         */
        Parting: {
            /** Attempt */
            attempt: number;
            /** Expected */
            expected: number | null;
            /** Fact */
            fact: string;
            /** First Step */
            first_step: number;
            /** Last Step */
            last_step: number | null;
            /** Ranks */
            ranks: number[];
            /** Values */
            values: (number | null)[];
        };
        /**
         * Preset
         * @description A rule ready to be taken over.
         */
        Preset: {
            /**
             * Group
             * @description `NaN and Inf`, `Loss scale`, `Underflow`, `Loss and gradients`, `Speed`, `The run`.
             */
            group: string;
            rule: components["schemas"]["Rule"];
            /** Sentence */
            sentence: string;
            /**
             * Taken
             * @description Whether a rule was made from it.
             */
            taken: boolean;
            /** Title */
            title: string;
        };
        /**
         * PresetChoice
         * @description Which presets to make rules of.
         */
        PresetChoice: {
            /**
             * Ids
             * @description Empty: the recommended ones, which are those of warnings and worse. One that was taken already stays as it is.
             */
            ids?: string[];
        };
        /** PresetList */
        PresetList: {
            /** Presets */
            presets: components["schemas"]["Preset"][];
        };
        /**
         * Problem
         * @description Every error body. `detail` says what was seen, what was expected and what to do.
         */
        Problem: {
            /** Code */
            code: string;
            /** Detail */
            detail: string;
            /** Request Id */
            request_id: string;
        };
        /**
         * Quality
         * @description One metric of one member against the baseline.
         */
        Quality: {
            /**
             * Absolute
             * @description The difference itself, where it is more than ten times the baseline's level: that is next to nothing then, and
             *     what is relative to it tells nothing.
             */
            absolute?: number | null;
            /** @description Relative to the baseline's level there, positive where larger; None for the baseline itself. */
            difference: components["schemas"]["Estimate"] | null;
            /**
             * @description Level at the end: the mean over the last tenth of what both have (at least 20 places, but no more than the last
             *     quarter).
             */
            final: components["schemas"]["Estimate"] | null;
            /**
             * Final Words
             * @description Also where it is not finite: `NaN from step 1,202`.
             */
            final_words: string;
            /**
             * First Step
             * @description The member's own step there.
             */
            first_step: number | null;
            /**
             * First X
             * @description Where the difference leaves the noise band and stays out to the end of what both have.
             */
            first_x: number | null;
            /** Lower Is Better */
            lower_is_better: boolean;
            /** Metric */
            metric: string;
            /**
             * Noise
             * @enum {string}
             */
            noise: "repeats" | "paired" | "tolerance" | "none";
            /**
             * Noise Absolute
             * @description Half width of the band, where the difference is told absolute.
             */
            noise_absolute?: number | null;
            /**
             * Noise Share
             * @description Half width of the band at the end, relative to the baseline's level.
             */
            noise_share: number | null;
            /**
             * Oscillation
             * @description `loss_oscillation` over the last 200 steps, for the loss.
             */
            oscillation: number | null;
            /**
             * Outcome
             * @enum {string}
             */
            outcome: "equal" | "worse" | "better" | "unknown";
            /**
             * Reason
             * @description Why it is unknown, or what limits it.
             * @default
             */
            reason?: string;
            /** Run */
            run: string;
        };
        /**
         * RankRow
         * @description One rank in the newest attempt.
         */
        RankRow: {
            /** Attempt */
            attempt: number;
            /** Busy S */
            busy_s: number | null;
            /** First Nonfinite Step */
            first_nonfinite_step: number | null;
            /** Host */
            host: string;
            /** Last Step */
            last_step: number | null;
            /** Local Rank */
            local_rank: number;
            /** Memory Bytes */
            memory_bytes: number | null;
            /** Mesh */
            mesh: {
                [key: string]: [
                    number,
                    number
                ];
            };
            /** Num Behind */
            num_behind: number;
            /** Num Nonfinite */
            num_nonfinite: number;
            /** Num Skipped */
            num_skipped: number | null;
            /** Pid */
            pid: number;
            /** Rank */
            rank: number;
            /**
             * State
             * @enum {string}
             */
            state: "training" | "waiting" | "stuck" | "lost_contact" | "killed" | "exception" | "finished";
            /** Step S */
            step_s: number | null;
            /** Wait Share */
            wait_share: number | null;
        };
        /**
         * RanksReport
         * @description Everything that the Ranks page says in words and tables.
         */
        RanksReport: {
            /** Agreement */
            agreement: components["schemas"]["Agreement"][];
            /** Attempt */
            attempt: number;
            /** Buckets */
            buckets: components["schemas"]["Bucket"][];
            /** Comm Hook */
            comm_hook: string;
            /** Num Origins */
            num_origins: number;
            /** Num Seen */
            num_seen: number;
            /** Origins */
            origins: components["schemas"]["Origin"][];
            /** Ranks */
            ranks: components["schemas"]["RankRow"][];
            /**
             * Role
             * @enum {string}
             */
            role: "healthy" | "unhealthy" | "failed" | "unknown";
            /** Sentence */
            sentence: string;
            straggler: components["schemas"]["Straggler"] | null;
            /** World Size */
            world_size: number;
        };
        /**
         * Reason
         * @description Why a member is likely worse, or the baseline where the member is better: one mechanism with its evidence.
         */
        Reason: {
            /**
             * Advice
             * @default
             */
            advice?: string;
            /**
             * Certainty
             * @default likely
             * @enum {string}
             */
            certainty?: "measured" | "likely";
            /**
             * Id
             * @description `underflow`, `lost_updates`, `scale_collapsed`, `nonfinite_applied`, `skips` ...
             */
            id: string;
            /**
             * Is Of Baseline
             * @description What was wrong with the baseline, where the member is better.
             * @default false
             */
            is_of_baseline?: boolean;
            /**
             * Layer
             * @default
             */
            layer?: string;
            /**
             * Score
             * @default 0
             */
            score?: number;
            /** Step */
            step?: number | null;
            /**
             * Text
             * @description One sentence with numbers: `head.weight lost 62% of its gradient below FP16's floor from step 340 on`.
             */
            text: string;
        };
        /**
         * Report
         * @description A comparison whole; lists are by member.
         */
        Report: {
            /** Cost */
            cost: components["schemas"]["Cost"][];
            fairness: components["schemas"]["Fairness"];
            /** Is Live */
            is_live: boolean;
            /**
             * Key
             * @description Run ids joined by commas: which comparison this is.
             */
            key: string;
            /** Members */
            members: components["schemas"]["Member"][];
            /**
             * Metrics
             * @description Series that at least two members have and that can stand for quality.
             */
            metrics: string[];
            /**
             * Numerics
             * @description The baseline's has no layers.
             */
            numerics: components["schemas"]["Numerics"][];
            options: components["schemas"]["Options"];
            /**
             * Outcome
             * @enum {string}
             */
            outcome: "equal" | "worse" | "better" | "unknown";
            /** Quality */
            quality: components["schemas"]["Quality"][];
            /**
             * Sentence
             * @description The verdict at the top.
             */
            sentence: string;
            /** Stability */
            stability: components["schemas"]["Stability"][];
            /**
             * Verdicts
             * @description Without the baseline.
             */
            verdicts: components["schemas"]["Verdict"][];
            /**
             * Version
             * @description Of this format; another number where a field is gone or means something else.
             * @default 1
             */
            version?: number;
        };
        /**
         * Rug
         * @description Every event of a run on one line; the counts of the marks add up to `total`.
         */
        Rug: {
            /** First Step */
            first_step: number;
            /** Last Step */
            last_step: number;
            /** Marks */
            marks: components["schemas"]["RugMark"][];
            /** Total */
            total: number;
        };
        /**
         * RugMark
         * @description Events that share a place on the rug: one event, or several closer than 4 px.
         */
        RugMark: {
            /** Count */
            count: number;
            /** First Step */
            first_step: number;
            /** Last Step */
            last_step: number;
            /**
             * Mark
             * @description Second channel, as in `EventItem.mark`.
             */
            mark: string;
            /**
             * Role
             * @description Colour role of the gravest of them.
             */
            role: string;
            /**
             * Severity
             * @enum {string}
             */
            severity: "info" | "warning" | "critical";
            /**
             * Text
             * @description Read-out: "steps 12,000-12,040: 3 skips, 1 scale growth".
             */
            text: string;
        };
        /**
         * Rule
         * @description When `aggregation` of `metric` over `window` is beyond `threshold` for long enough, say so.
         */
        Rule: {
            /**
             * Aggregation
             * @default last
             */
            aggregation?: string;
            /**
             * Argument
             * @description Of the aggregation: which quantile.
             */
            argument?: number | null;
            /**
             * Baseline
             * @description For `ratio`: id of the run compared with; empty: the run's own past.
             * @default
             */
            baseline?: string;
            /**
             * Channels
             * @description Ids of channels; None: all that are switched on.
             */
            channels?: string[] | null;
            /**
             * Clear
             * @description What it must come back to before it counts as over; None: the threshold.
             */
            clear?: number | null;
            /**
             * Comparison
             * @default >
             * @enum {string}
             */
            comparison?: ">" | ">=" | "<" | "<=";
            /**
             * Enabled
             * @default true
             */
            enabled?: boolean;
            /**
             * Group By
             * @description One alert for each. A series' own labels (scaler, optimizer) always tell apart.
             * @default [
             *       "run"
             *     ]
             */
            group_by?: ("run" | "layer" | "rank")[];
            /**
             * @description How long it must be so before it fires (`for` in other systems).
             * @default {}
             */
            hold?: components["schemas"]["Span"];
            /**
             * Id
             * @description Stays when the rule is changed; what YAML and inhibitions refer to.
             */
            id: string;
            /**
             * Inhibited By
             * @description Ids of rules which, firing on the same run, keep this one from sending.
             * @default []
             */
            inhibited_by?: string[];
            /**
             * @description How long it must be over before it is resolved.
             * @default {}
             */
            keep_firing?: components["schemas"]["Span"];
            /**
             * Message
             * @description Template of the sentence; empty: the one made from the rule. Fields: {run}, {project}, {layer}, {rank}, {metric},
             *     {value}, {threshold}, {step}, {first_step}, {severity}, {url}.
             * @default
             */
            message?: string;
            /**
             * Metric
             * @description Name of a series (`amp.scale`, `val/accuracy`), or of a derived metric (`nonfinite_rate.applied`).
             */
            metric: string;
            /** Name */
            name: string;
            /**
             * Preset
             * @description Id of the preset it was made from.
             * @default
             */
            preset?: string;
            /**
             * Reason
             * @description Why this threshold; shown beside the rule.
             * @default
             */
            reason?: string;
            /**
             * Repeat S
             * @description Send again so often while it fires and nobody acknowledged; None: once.
             */
            repeat_s?: number | null;
            /**
             * Runbook
             * @default
             */
            runbook?: string;
            /**
             * @default {
             *       "projects": [],
             *       "tags": [],
             *       "runs": [],
             *       "layers": [],
             *       "ranks": []
             *     }
             */
            scope?: components["schemas"]["Scope"];
            /**
             * Severity
             * @default warning
             * @enum {string}
             */
            severity?: "info" | "warning" | "critical";
            /** Threshold */
            threshold: number;
            /**
             * @default {
             *       "steps": 1
             *     }
             */
            window?: components["schemas"]["Span"];
        };
        /**
         * RuleCheck
         * @description What can be said of a rule without saving it.
         */
        RuleCheck: {
            /**
             * Problems
             * @description `where` is the field: `threshold`, `window.steps`.
             */
            problems: components["schemas"]["RuleProblem"][];
            /**
             * Sentence
             * @description In words; empty while it cannot be evaluated.
             */
            sentence: string;
        };
        /** RuleItem */
        RuleItem: {
            /**
             * Error
             * @description Why it cannot be evaluated on some run; empty: it can.
             */
            error: string;
            /** Firing */
            firing: number;
            /** Last Fired Us */
            last_fired_us: number | null;
            /** Pending */
            pending: number;
            rule: components["schemas"]["Rule"];
            /**
             * Sentence
             * @description The rule in words: "NaN/Inf rate, mean over 200 steps, above 1%".
             */
            sentence: string;
            /** Version */
            version: number;
        };
        /** RuleList */
        RuleList: {
            /** Rules */
            rules: components["schemas"]["RuleItem"][];
        };
        /** RuleProblem */
        RuleProblem: {
            /** Text */
            text: string;
            /**
             * Where
             * @description `rules[2].threshold`, with the line where it is known.
             */
            where: string;
        };
        /**
         * RulesText
         * @description Rules as YAML.
         */
        RulesText: {
            /** Text */
            text: string;
        };
        /**
         * RuleVocabulary
         * @description For the sentence editor: what can be chosen.
         */
        RuleVocabulary: {
            /** Aggregations */
            aggregations: components["schemas"]["AggregationItem"][];
            /**
             * Metrics
             * @description Derived ones first, then the series of the runs there are.
             */
            metrics: components["schemas"]["MetricItem"][];
            /** Projects */
            projects: string[];
            /** Tags */
            tags: string[];
        };
        /**
         * RunBaseline
         * @description What a run is to be compared with, by its own word (`watch(baseline=)`).
         */
        RunBaseline: {
            /**
             * Asked
             * @description The id or name that was given.
             */
            asked: string;
            /** Name */
            name: string;
            /** Project */
            project: string;
            /**
             * Run
             * @description Id of the run that is meant; None: there is no such run here.
             */
            run: string | null;
        };
        /** RunConfig */
        RunConfig: {
            /** Sections */
            sections: components["schemas"]["ConfigSection"][];
        };
        /** RunList */
        RunList: {
            /** Precisions */
            precisions: string[];
            /** Projects */
            projects: string[];
            /** Runs */
            runs: components["schemas"]["RunSummary"][];
            /** Tags */
            tags: string[];
            /**
             * Total
             * @description Before filters: "0 of 34".
             */
            total: number;
        };
        /** RunPatch */
        RunPatch: {
            /** Name */
            name?: string | null;
            /** Tags */
            tags?: string[] | null;
        };
        /**
         * RunSummary
         * @description A row of the Runs table; also what the run's header shows.
         */
        RunSummary: {
            /** Attempts */
            attempts: number;
            baseline?: components["schemas"]["RunBaseline"] | null;
            /** Created Us */
            created_us: number;
            /**
             * Demo
             * @description True shows the banner: numbers are real, speed is not what a GPU gives.
             */
            demo: boolean;
            /** Device */
            device: string;
            /** Ended Us */
            ended_us: number | null;
            /** First Step */
            first_step: number | null;
            health: components["schemas"]["Health"];
            /** Id */
            id: string;
            /** Last Step */
            last_step: number | null;
            /** Loss */
            loss: number | ("NaN" | "Infinity" | "-Infinity") | null;
            /**
             * Memory Bytes
             * @description Peak device memory where there is a device, else resident memory.
             */
            memory_bytes: number | ("NaN" | "Infinity" | "-Infinity") | null;
            /** Name */
            name: string;
            /**
             * Precision
             * @description Label as given: `FP32`, `TF32`, `FP16-AMP`, `FP16`, `BF16-AMP`, `BF16`, `mixed`, or empty when not known yet.
             */
            precision: string;
            /**
             * Precision Role
             * @description Colour role: `fp32`, `fp16`, `bf16`, `fp8` or empty.
             */
            precision_role: string;
            /** Project */
            project: string;
            /** Scale */
            scale: number | ("NaN" | "Infinity" | "-Infinity") | null;
            /** Sentence */
            sentence: components["schemas"]["Chip"][];
            skips: components["schemas"]["Skips"];
            /**
             * State
             * @enum {string}
             */
            state: "waiting" | "live" | "finished" | "failed" | "killed" | "lost" | "superseded";
            /**
             * State Text
             * @description `Live`, `Finished`, `Failed: RuntimeError`, `Killed`, `Lost contact 2 min ago`...
             */
            state_text: string;
            /** Steps Per S */
            steps_per_s: number | ("NaN" | "Infinity" | "-Infinity") | null;
            strip: components["schemas"]["Strip"] | null;
            /** Tags */
            tags: string[];
            /** @description The strip's lower lane: underflow of the worst layer. None: no layer was sketched. */
            underflow?: components["schemas"]["Strip"] | null;
            /** Updated Us */
            updated_us: number;
            /** World Size */
            world_size: number;
        };
        /**
         * SaveComparison
         * @description Body of saving or changing a comparison.
         */
        SaveComparison: {
            /** Name */
            name: string;
            /**
             * @default {
             *       "metric": "loss",
             *       "align": "attempts",
             *       "tolerance": 0.005
             *     }
             */
            options?: components["schemas"]["CompareOptions"];
            /** Runs */
            runs: string[];
        };
        /**
         * SavedComparison
         * @description A comparison that somebody gave a name.
         */
        SavedComparison: {
            /** Created Us */
            created_us: number;
            /** Id */
            id: string;
            /** Name */
            name: string;
            options: components["schemas"]["Options"];
            /**
             * Runs
             * @description The baseline first. Where some are deleted the others can still be compared, as long as there are two.
             */
            runs: components["schemas"]["SavedMember"][];
            /** Updated Us */
            updated_us: number;
        };
        /**
         * SavedComparisons
         * @description The last changed first.
         */
        SavedComparisons: {
            /** Comparisons */
            comparisons: components["schemas"]["SavedComparison"][];
        };
        /**
         * SavedMember
         * @description A run of a saved comparison as it stands now.
         */
        SavedMember: {
            /** Deleted Us */
            deleted_us?: number | null;
            /** Id */
            id: string;
            /** Is Deleted */
            is_deleted: boolean;
            /**
             * Name
             * @description Of a deleted run, what it was called.
             */
            name: string;
            /** Precision */
            precision: string;
            /** Precision Role */
            precision_role: string;
            /** Project */
            project: string;
            /**
             * State
             * @description As in the table of runs; empty for a deleted run.
             */
            state: string;
        };
        /**
         * Scope
         * @description What a rule looks at. Empty lists: everything; several entries of one list: any of them.
         */
        Scope: {
            /**
             * Layers
             * @description Patterns of parameters' names, for metrics of layers.
             * @default []
             */
            layers?: string[];
            /**
             * Projects
             * @default []
             */
            projects?: string[];
            /**
             * Ranks
             * @default []
             */
            ranks?: number[];
            /**
             * Runs
             * @description Patterns of a run's name, or its id.
             * @default []
             */
            runs?: string[];
            /**
             * Tags
             * @default []
             */
            tags?: string[];
        };
        /**
         * SeriesItem
         * @description One series of a run: a name with its labels.
         */
        SeriesItem: {
            /**
             * Id
             * @description 63 bits, as text because JavaScript's numbers hold 53.
             */
            id: string;
            /** Kind */
            kind: string;
            /** Labels */
            labels: {
                [key: string]: string;
            };
            /** Name */
            name: string;
            /** Reduction */
            reduction: string;
            /** Unit */
            unit: string;
        };
        /** SeriesList */
        SeriesList: {
            /** Series */
            series: components["schemas"]["SeriesItem"][];
        };
        /**
         * ServerHealth
         * @description Body of /healthz; 200 when `ok`, else 503.
         */
        ServerHealth: {
            /**
             * Database
             * @description `ok`, or what is wrong with it.
             */
            database: string;
            /** Ok */
            ok: boolean;
            /** Writer */
            writer: string;
        };
        /** ServerInfo */
        ServerInfo: {
            /**
             * Address
             * @description What to put into HALFSCOPE_SERVER; shown in the three lines of code of the empty state.
             */
            address: string;
            /**
             * Database
             * @enum {string}
             */
            database: "sqlite" | "postgresql";
            /**
             * Snippet
             * @description The three lines of code of the empty state, address filled in where it is not the default.
             */
            snippet: string;
            /** Version */
            version: string;
            /** Web Version */
            web_version: string;
        };
        /** ServerMessage */
        ServerMessage: components["schemas"]["LiveRuns"] | components["schemas"]["LiveRun"] | components["schemas"]["LiveRanks"] | components["schemas"]["LiveCompare"] | components["schemas"]["LivePanels"] | components["schemas"]["LiveAlerts"] | components["schemas"]["LiveDeleted"] | components["schemas"]["LiveError"];
        /** SignedIn */
        SignedIn: {
            /** Expires Us */
            expires_us: number;
        };
        /** SignIn */
        SignIn: {
            /** Code */
            code: string;
        };
        /**
         * SignInLink
         * @description Opens the web app signed in, once, until it expires. The code stands in the fragment, which browsers never
         *     send.
         */
        SignInLink: {
            /** Code */
            code: string;
            /** Expires Us */
            expires_us: number;
            /** Url */
            url: string;
        };
        /**
         * SilenceBody
         * @description Silence what matches; empty rule, run and layer match everything, which must be said with `everything`.
         */
        SilenceBody: {
            /**
             * Comment
             * @default
             */
            comment?: string;
            /**
             * Everything
             * @default false
             */
            everything?: boolean;
            /**
             * For S
             * @description None: until it is lifted.
             */
            for_s?: number | null;
            /**
             * Layer
             * @default
             */
            layer?: string;
            /**
             * Rule
             * @default
             */
            rule?: string;
            /**
             * Run
             * @default
             */
            run?: string;
        };
        /** SilenceItem */
        SilenceItem: {
            /** Comment */
            comment: string;
            /** Created Us */
            created_us: number;
            /** Id */
            id: string;
            /** Layer */
            layer: string;
            /** Rule */
            rule: string;
            /** Run */
            run: string;
            /** Run Name */
            run_name: string;
            /** Until Us */
            until_us: number | null;
        };
        /** SilenceList */
        SilenceList: {
            /** Silences */
            silences: components["schemas"]["SilenceItem"][];
        };
        /** Skips */
        Skips: {
            /** Longest Streak */
            longest_streak: number;
            /** Probe */
            probe: number;
            /** Settling */
            settling: number;
            /**
             * Share
             * @description Skips / attempts, 0..1.
             */
            share: number;
            /**
             * Single
             * @description Skips that are neither settling, probe nor part of a streak.
             */
            single: number;
            /** Streak */
            streak: number;
            /** Total */
            total: number;
        };
        /**
         * Span
         * @description A stretch of training: so many steps, or so many seconds of its own clock (the times its steps were taken at).
         *     Both absent: none at all.
         */
        Span: {
            /** Seconds */
            seconds?: number | null;
            /** Steps */
            steps?: number | null;
        };
        /**
         * Stability
         * @description How a member fared with its numbers.
         */
        Stability: {
            /** Longest Streak */
            longest_streak: number;
            /** Nonfinite Applied */
            nonfinite_applied: number;
            /** Nonfinite Caught */
            nonfinite_caught: number;
            /** Num Steps */
            num_steps: number;
            /** Run */
            run: string;
            /** Scale Last */
            scale_last: number | null;
            /** Scale Max */
            scale_max: number | null;
            /** Scale Min */
            scale_min: number | null;
            /**
             * Skips
             * @description By class: settling, probe, single, streak ...
             */
            skips: {
                [key: string]: number;
            };
        };
        /**
         * Straggler
         * @description A rank that holds the others up.
         */
        Straggler: {
            /** Cost Share */
            cost_share: number;
            /** Extra S */
            extra_s: number;
            /** Rank */
            rank: number;
            /** Since Step */
            since_step: number;
        };
        /**
         * Strip
         * @description A health strip lane: one cell per bin of steps; bin k covers first_step + [k, k+1) * (last_step + 1 -
         *     first_step) / num_bins.
         */
        Strip: {
            /**
             * Cells
             * @description base64 of uint8 per bin: class id.
             */
            cells: string;
            /** Classes */
            classes: components["schemas"]["StripClass"][];
            /**
             * Clock
             * @description (step, time in microseconds) at up to 65 steps, ascending: turns a brushed stretch into times. Empty: not
             *     known.
             * @default []
             */
            clock?: [
                number,
                number
            ][];
            /** First Step */
            first_step: number;
            /**
             * Heights
             * @description base64 of uint8 per bin: 0..255 of the lane's height.
             */
            heights: string;
            /** Lane */
            lane: string;
            /** Last Step */
            last_step: number;
            /** Num Bins */
            num_bins: number;
            /** Ranges */
            ranges: components["schemas"]["StripRange"][];
            /**
             * Summary
             * @description One sentence for role=img: "12,400 steps, 6 skips, all probes, no NaN or Inf applied".
             */
            summary: string;
            /**
             * Texts
             * @description Read-out of bins that are not plainly clean.
             */
            texts: {
                [key: string]: string;
            };
        };
        /**
         * StripClass
         * @description How a class of the strip is drawn and named. Thresholds and colours live on the server.
         */
        StripClass: {
            /** Id */
            id: number;
            /**
             * Min Px
             * @default 1
             */
            min_px?: number;
            /** Name */
            name: string;
            /**
             * Rank
             * @description When two classes fall on one pixel the higher rank is painted over the lower.
             */
            rank: number;
            /**
             * Role
             * @description Colour role of the theme.
             */
            role: string;
        };
        /**
         * StripRange
         * @description A bad stretch: what hover and arrow keys read out, and a screen reader lists.
         */
        StripRange: {
            /** First Step */
            first_step: number;
            /** Last Step */
            last_step: number;
            /**
             * Layer
             * @description The layer to look at, where one is known: the worst of the stretch, or where NaN and Inf began.
             * @default
             */
            layer?: string;
            /**
             * Severity
             * @enum {string}
             */
            severity: "info" | "warning" | "critical";
            /**
             * Step
             * @description The step to look at: the worst of the stretch.
             */
            step?: number | null;
            /** Text */
            text: string;
        };
        /**
         * Table
         * @description The same numbers for "Show as table".
         */
        Table: {
            /** Columns */
            columns: string[];
            /**
             * Note
             * @description Which rows were left out.
             * @default
             */
            note?: string;
            /** Rows */
            rows: string[][];
        };
        /** TestResult */
        TestResult: {
            /** Ok */
            ok: boolean;
            /**
             * Text
             * @description What was sent where, or what went wrong and what to do.
             */
            text: string;
            /** Took Ms */
            took_ms: number;
        };
        /**
         * Theme
         * @description Colour role to CSS colour.
         */
        Theme: {
            /** Dark */
            dark: {
                [key: string]: string;
            };
            /** Light */
            light: {
                [key: string]: string;
            };
        };
        /**
         * Unwatch
         * @description Watch neither runs, a run nor a comparison any longer.
         */
        Unwatch: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "unwatch";
        };
        /**
         * Verdict
         * @description What is said of one member against the baseline.
         */
        Verdict: {
            /** From Step */
            from_step: number | null;
            /** Layer */
            layer: string;
            /**
             * Limits
             * @description What this does not say, or rests on: `one run each; tolerance 0.5%`.
             */
            limits: string[];
            /**
             * Outcome
             * @enum {string}
             */
            outcome: "equal" | "worse" | "better" | "unknown";
            /** Reasons */
            reasons: components["schemas"]["Reason"][];
            /** Run */
            run: string;
            /** Sentence */
            sentence: string;
        };
        /**
         * WatchAlerts
         * @description Tell of alerts too, whatever else is watched: the numbers now, then every change.
         */
        WatchAlerts: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "watch_alerts";
        };
        /**
         * WatchCompare
         * @description Send this comparison's report and these of its panels now and whenever one of its runs changes; replaces the
         *     former request.
         */
        WatchCompare: {
            /**
             * @default {
             *       "metric": "loss",
             *       "align": "attempts",
             *       "tolerance": 0.005
             *     }
             */
            options?: components["schemas"]["CompareOptions"];
            /** Panels */
            panels: string[];
            /** Runs */
            runs: string[];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "watch_compare";
            /**
             * @description `first` and `last` count what the runs are aligned by; `x` is left out of account.
             * @default {
             *       "x": "step",
             *       "first": null,
             *       "last": null,
             *       "y": "auto",
             *       "smooth": 0,
             *       "width_px": 800,
             *       "utc_offset_min": 0,
             *       "layer": "",
             *       "stat": "underflow",
             *       "step": null,
             *       "gradient": "auto",
             *       "rows": [],
             *       "rank": null
             *     }
             */
            window?: components["schemas"]["Window"];
        };
        /**
         * WatchRun
         * @description Send this run's summary, strip and these panels now and whenever they change; replaces the former request.
         */
        WatchRun: {
            /**
             * Events
             * @description Also tell when there are new events (the page then asks for them).
             * @default false
             */
            events?: boolean;
            /** Panels */
            panels: string[];
            /**
             * Ranks
             * @description Also send what is said of its ranks.
             * @default false
             */
            ranks?: boolean;
            /** Run */
            run: string;
            /**
             * Strip Bins
             * @default 800
             */
            strip_bins?: number;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "watch_run";
            /**
             * @default {
             *       "x": "step",
             *       "first": null,
             *       "last": null,
             *       "y": "auto",
             *       "smooth": 0,
             *       "width_px": 800,
             *       "utc_offset_min": 0,
             *       "layer": "",
             *       "stat": "underflow",
             *       "step": null,
             *       "gradient": "auto",
             *       "rows": [],
             *       "rank": null
             *     }
             */
            window?: components["schemas"]["Window"];
        };
        /**
         * WatchRuns
         * @description Send the Runs table now and whenever it changes.
         */
        WatchRuns: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "watch_runs";
        };
        /**
         * Window
         * @description Which part, and how it is drawn. `first`/`last` None: the whole run, following its end.
         */
        Window: {
            /**
             * First
             * @default null
             */
            first?: number | null;
            /**
             * Gradient
             * @description As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16.
             * @default auto
             * @enum {string}
             */
            gradient?: "auto" | "seen" | "true";
            /**
             * Last
             * @description In steps, or in microseconds since the epoch when x is `time`.
             * @default null
             */
            last?: number | null;
            /**
             * Layer
             * @description Name of a parameter or module; empty: the layer with the worst underflow.
             * @default
             */
            layer?: string;
            /**
             * Rank
             * @description Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together.
             * @default null
             */
            rank?: number | null;
            /**
             * Rows
             * @description Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened.
             * @default []
             */
            rows?: string[];
            /**
             * Smooth
             * @description Weight of the exponential moving average; 0: off. The raw line stays visible behind it.
             * @default 0
             */
            smooth?: number;
            /**
             * Stat
             * @description What the layers' heatmap shows.
             * @default underflow
             * @enum {string}
             */
            stat?: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
            /**
             * Step
             * @description The step whose histogram is shown: the measured one nearest to it. None: the newest.
             * @default null
             */
            step?: number | null;
            /**
             * Utc Offset Min
             * @description Minutes to add to UTC for the viewer's local time on the time axis.
             * @default 0
             */
            utc_offset_min?: number;
            /**
             * Width Px
             * @default 800
             */
            width_px?: number;
            /**
             * X
             * @default step
             * @enum {string}
             */
            x?: "step" | "time";
            /**
             * Y
             * @default auto
             * @enum {string}
             */
            y?: "linear" | "log" | "auto";
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    list_alerts: {
        parameters: {
            query?: {
                /** @description `next_cursor` of the page before */
                before?: string;
                limit?: number;
                /** @description Of this rule alone */
                rule?: string;
                /** @description Of this run alone */
                run?: string;
                /** @description Any of these states; all but pending when none is given */
                state?: ("pending" | "firing" | "resolved" | "no_data" | "error")[] | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_alert: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of an alert */
                alert: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    acknowledge_alert: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of an alert */
                alert: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_channels: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChannelList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    add_channel: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChannelBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChannelItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    change_channel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a channel */
                channel: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ChannelBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ChannelItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_channel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a channel */
                channel: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    test_channel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a channel */
                channel: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TestResult"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    compare: {
        parameters: {
            query: {
                /**
                 * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
                 *     tokens seen, or seconds since its first step.
                 */
                align?: "attempts" | "applied" | "samples" | "tokens" | "time";
                /** @description Series that stands for quality. */
                metric?: string;
                /** @description Ids joined by commas, the baseline's first. */
                runs: string;
                /** @description Relative difference that is never called one, 0..1. */
                tolerance?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Report"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_compare_panels: {
        parameters: {
            query: {
                /**
                 * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
                 *     tokens seen, or seconds since its first step.
                 */
                align?: "attempts" | "applied" | "samples" | "tokens" | "time";
                /** @description Series that stands for quality. */
                metric?: string;
                /** @description Ids joined by commas, the baseline's first. */
                runs: string;
                /** @description Relative difference that is never called one, 0..1. */
                tolerance?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PanelList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_compare_panel: {
        parameters: {
            query: {
                /**
                 * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
                 *     tokens seen, or seconds since its first step.
                 */
                align?: "attempts" | "applied" | "samples" | "tokens" | "time";
                first?: number | null;
                /** @description As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16. */
                gradient?: "auto" | "seen" | "true";
                /** @description In steps, or in microseconds since the epoch when x is `time`. */
                last?: number | null;
                /** @description Name of a parameter or module; empty: the layer with the worst underflow. */
                layer?: string;
                /** @description Series that stands for quality. */
                metric?: string;
                /** @description Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together. */
                rank?: number | null;
                /** @description Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened. */
                rows?: string[];
                /** @description Ids joined by commas, the baseline's first. */
                runs: string;
                /** @description Weight of the exponential moving average; 0: off. The raw line stays visible behind it. */
                smooth?: number;
                /** @description What the layers' heatmap shows. */
                stat?: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
                /** @description The step whose histogram is shown: the measured one nearest to it. None: the newest. */
                step?: number | null;
                /** @description Relative difference that is never called one, 0..1. */
                tolerance?: number;
                /** @description Minutes to add to UTC for the viewer's local time on the time axis. */
                utc_offset_min?: number;
                width_px?: number;
                x?: "step" | "time";
                y?: "linear" | "log" | "auto";
            };
            header?: never;
            path: {
                /** @description Id of a panel */
                panel: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PanelFigure"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_compare_panel_table: {
        parameters: {
            query: {
                /**
                 * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
                 *     tokens seen, or seconds since its first step.
                 */
                align?: "attempts" | "applied" | "samples" | "tokens" | "time";
                first?: number | null;
                /** @description As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16. */
                gradient?: "auto" | "seen" | "true";
                /** @description In steps, or in microseconds since the epoch when x is `time`. */
                last?: number | null;
                /** @description Name of a parameter or module; empty: the layer with the worst underflow. */
                layer?: string;
                /** @description Series that stands for quality. */
                metric?: string;
                /** @description Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together. */
                rank?: number | null;
                /** @description Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened. */
                rows?: string[];
                /** @description Ids joined by commas, the baseline's first. */
                runs: string;
                /** @description Weight of the exponential moving average; 0: off. The raw line stays visible behind it. */
                smooth?: number;
                /** @description What the layers' heatmap shows. */
                stat?: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
                /** @description The step whose histogram is shown: the measured one nearest to it. None: the newest. */
                step?: number | null;
                /** @description Relative difference that is never called one, 0..1. */
                tolerance?: number;
                /** @description Minutes to add to UTC for the viewer's local time on the time axis. */
                utc_offset_min?: number;
                width_px?: number;
                x?: "step" | "time";
                y?: "linear" | "log" | "auto";
            };
            header?: never;
            path: {
                /** @description Id of a panel */
                panel: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Table"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    export_compare_html: {
        parameters: {
            query: {
                /**
                 * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
                 *     tokens seen, or seconds since its first step.
                 */
                align?: "attempts" | "applied" | "samples" | "tokens" | "time";
                /** @description Series that stands for quality. */
                metric?: string;
                /** @description Ids joined by commas, the baseline's first. */
                runs: string;
                /** @description Relative difference that is never called one, 0..1. */
                tolerance?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    export_compare_json: {
        parameters: {
            query: {
                /**
                 * @description What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
                 *     tokens seen, or seconds since its first step.
                 */
                align?: "attempts" | "applied" | "samples" | "tokens" | "time";
                /** @description Series that stands for quality. */
                metric?: string;
                /** @description Ids joined by commas, the baseline's first. */
                runs: string;
                /** @description Relative difference that is never called one, 0..1. */
                tolerance?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_comparisons: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SavedComparisons"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    save_comparison: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SaveComparison"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SavedComparison"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_comparison: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a saved comparison */
                comparison: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SavedComparison"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    change_comparison: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a saved comparison */
                comparison: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SaveComparison"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SavedComparison"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_comparison: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a saved comparison */
                comparison: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_rules: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RuleList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    add_rule: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Rule"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RuleItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description Somebody else has changed it, or made one of this id */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    change_rule: {
        parameters: {
            query?: {
                /** @description The version that the change was made from; none: whatever is there */
                version?: number | null;
            };
            header?: never;
            path: {
                /** @description Id of a rule */
                rule: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Rule"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RuleItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description Somebody else has changed it, or made one of this id */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_rule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a rule */
                rule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    backtest_rule: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["BacktestBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Backtest"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    check_rule: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: unknown;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RuleCheck"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_presets: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PresetList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    take_over_presets: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PresetChoice"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RuleList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_rule_vocabulary: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RuleVocabulary"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    export_rules: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RulesText"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    import_rules: {
        parameters: {
            query?: {
                /** @description Only say what would be done */
                dry_run?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RulesText"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImportResult"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_runs: {
        parameters: {
            query?: {
                /** @description Any of these precision labels */
                precision?: string[] | null;
                /** @description Any of these projects */
                project?: string[] | null;
                /** @description Words that name, project, id or a tag must contain */
                search?: string;
                /** @description Any of these states */
                state?: ("waiting" | "live" | "finished" | "failed" | "killed" | "lost" | "superseded")[] | null;
                /** @description Cells of the health strip */
                strip_bins?: number;
                /** @description All of these tags */
                tag?: string[] | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_run: {
        parameters: {
            query?: {
                /** @description Cells of the health strip */
                strip_bins?: number;
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunSummary"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    change_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunPatch"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunSummary"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_alert_bands: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AlertBands"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_candidates: {
        parameters: {
            query?: {
                /** @description Words that name, project, id or a tag must contain */
                search?: string;
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CompareCandidates"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_config: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RunConfig"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_events: {
        parameters: {
            query?: {
                /** @description next_cursor of the page before */
                cursor?: string | null;
                first_step?: number | null;
                /** @description Any of these kinds; all without it */
                kind?: string[] | null;
                last_step?: number | null;
                limit?: number;
                newest_first?: boolean;
                /** @description Only of this rank; of all without it */
                rank?: number | null;
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventPage"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    export_run: {
        parameters: {
            query?: {
                format?: "jsonl" | "csv";
                /** @description Kinds of rows; all without it, points alone for CSV */
                kind?: ("points" | "events" | "sketches")[] | null;
                /** @description Glob over series names; points alone when given */
                series?: string;
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/jsonl": unknown;
                    "text/csv": unknown;
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_layers: {
        parameters: {
            query?: {
                first?: number | null;
                /** @description As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16. */
                gradient?: "auto" | "seen" | "true";
                /** @description In steps, or in microseconds since the epoch when x is `time`. */
                last?: number | null;
                /** @description Name of a parameter or module; empty: the layer with the worst underflow. */
                layer?: string;
                /** @description Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together. */
                rank?: number | null;
                /** @description Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened. */
                rows?: string[];
                /** @description Weight of the exponential moving average; 0: off. The raw line stays visible behind it. */
                smooth?: number;
                /** @description What the layers' heatmap shows. */
                stat?: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
                /** @description The step whose histogram is shown: the measured one nearest to it. None: the newest. */
                step?: number | null;
                /** @description Minutes to add to UTC for the viewer's local time on the time axis. */
                utc_offset_min?: number;
                width_px?: number;
                x?: "step" | "time";
                y?: "linear" | "log" | "auto";
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LayerTree"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_panels: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PanelList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_panel: {
        parameters: {
            query?: {
                first?: number | null;
                /** @description As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16. */
                gradient?: "auto" | "seen" | "true";
                /** @description In steps, or in microseconds since the epoch when x is `time`. */
                last?: number | null;
                /** @description Name of a parameter or module; empty: the layer with the worst underflow. */
                layer?: string;
                /** @description Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together. */
                rank?: number | null;
                /** @description Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened. */
                rows?: string[];
                /** @description Weight of the exponential moving average; 0: off. The raw line stays visible behind it. */
                smooth?: number;
                /** @description What the layers' heatmap shows. */
                stat?: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
                /** @description The step whose histogram is shown: the measured one nearest to it. None: the newest. */
                step?: number | null;
                /** @description Minutes to add to UTC for the viewer's local time on the time axis. */
                utc_offset_min?: number;
                width_px?: number;
                x?: "step" | "time";
                y?: "linear" | "log" | "auto";
            };
            header?: never;
            path: {
                /** @description Id of a panel */
                panel: string;
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PanelFigure"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_panel_table: {
        parameters: {
            query?: {
                first?: number | null;
                /** @description As FP16 sees it (times the loss scale), or as it is; `auto`: seen where the run computes in FP16. */
                gradient?: "auto" | "seen" | "true";
                /** @description In steps, or in microseconds since the epoch when x is `time`. */
                last?: number | null;
                /** @description Name of a parameter or module; empty: the layer with the worst underflow. */
                layer?: string;
                /** @description Whose line is drawn, with those of all others as the band behind it; None: the run's, of all ranks together. */
                rank?: number | null;
                /** @description Visible nodes of the layer tree, in order; empty: as the tree stands when it is first opened. */
                rows?: string[];
                /** @description Weight of the exponential moving average; 0: off. The raw line stays visible behind it. */
                smooth?: number;
                /** @description What the layers' heatmap shows. */
                stat?: "underflow" | "headroom" | "nonfinite" | "norm" | "zeros";
                /** @description The step whose histogram is shown: the measured one nearest to it. None: the newest. */
                step?: number | null;
                /** @description Minutes to add to UTC for the viewer's local time on the time axis. */
                utc_offset_min?: number;
                width_px?: number;
                x?: "step" | "time";
                y?: "linear" | "log" | "auto";
            };
            header?: never;
            path: {
                /** @description Id of a panel */
                panel: string;
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Table"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_ranks: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RanksReport"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_rug: {
        parameters: {
            query?: {
                first_step?: number | null;
                last_step?: number | null;
                /** @description Width of the line that the events lie on */
                width_px?: number;
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Rug"] | null;
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_series: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SeriesList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_strip: {
        parameters: {
            query?: {
                /** @description Cells of the health strip */
                bins?: number;
                first_step?: number | null;
                /** @description The upper lane, of every step, or the lower one: underflow of the worst layer */
                lane?: "steps" | "underflow";
                last_step?: number | null;
            };
            header?: never;
            path: {
                /** @description Id of a run */
                run: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Strip"] | null;
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description No such run */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description The run was deleted */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedProblem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    server_info: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ServerInfo"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    current_session: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SignedIn"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sign_in: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SignIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SignedIn"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    sign_out: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    create_sign_in_link: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SignInLink"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_silences: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SilenceList"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    add_silence: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SilenceBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SilenceItem"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    lift_silence: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                silence: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description There is none of this id */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    theme: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Theme"];
                };
            };
            /** @description Not signed in */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
            /** @description An argument that cannot be used */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Problem"];
                };
            };
        };
    };
    health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ServerHealth"];
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ServerHealth"];
                };
            };
        };
    };
}
