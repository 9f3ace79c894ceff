// @generated automatically by Diesel CLI.

diesel::table! {
    diesel_object_locks (id) {
        id -> Text,
        kept -> Bool,
    }
}
