//! The tables. `store/*.sql` creates them.

diesel::table! {
    /// Lists of files: log files to sort into parts, or the parts of an hour to merge into its file.
    collate_lists (id) {
        id -> BigInt,
        /// The hour whose parts these are; NULL for log files.
        hour -> Nullable<Text>,
        /// The number of files.
        items -> Integer,
        /// See `store::state`.
        state -> Integer,
        /// The fence of the last worker that took the list; before that, of the hour's file. Only a larger fence can
        /// take the list.
        fence -> BigInt,
    }
}

diesel::table! {
    /// Log files and parts.
    collate_files (name) {
        name -> Text,
        /// The hour of a part; NULL for a log file.
        hour -> Nullable<Text>,
        /// The list that contains the file; NULL for a part that is not queued yet.
        list_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    /// The current file of each hour.
    collate_hours (hour) {
        hour -> Text,
        name -> Text,
        line_count -> BigInt,
        /// The fence of the slot under which it was written. Only a larger fence can replace it.
        fence -> BigInt,
    }
}
