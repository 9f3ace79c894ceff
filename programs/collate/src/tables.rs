//! The tables of the work. `store/*.sql` creates them.

diesel::table! {
    /// Lists of files: log files to be sorted into parts, or the parts of an hour to be merged into its
    /// file.
    collate_lists (id) {
        id -> BigInt,
        /// The hour whose parts these are; NULL for log files.
        hour -> Nullable<Text>,
        /// How many files.
        items -> Integer,
        /// See `State`.
        state -> Integer,
        /// Of the slot of the last who took the list; before that, of the hour's file. Only a larger one
        /// takes the list.
        fence -> BigInt,
    }
}

diesel::table! {
    /// Log files and parts.
    collate_files (name) {
        name -> Text,
        /// The hour of a part; NULL for a log file.
        hour -> Nullable<Text>,
        /// The list that it is on; NULL for a part that is not queued yet.
        list_id -> Nullable<BigInt>,
    }
}

diesel::table! {
    /// The file of each hour that counts.
    collate_hours (hour) {
        hour -> Text,
        name -> Text,
        line_count -> BigInt,
        /// Of the slot under which it was written. Only a larger one replaces it.
        fence -> BigInt,
    }
}
