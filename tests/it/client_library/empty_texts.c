/* The defect CONC-821 of libmariadb 3.3.19 and 3.4.9, for a library that has it not: binding the results of a
   statement sets the lengths of texts to 0, also of those that were fetched just before. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mysql.h>

#ifdef MARIADB_BASE_VERSION
typedef my_bool answer;
#else
typedef bool answer;
#endif

answer mysql_stmt_bind_result(MYSQL_STMT *stmt, MYSQL_BIND *binds) {
    answer (*bind_result)(MYSQL_STMT *, MYSQL_BIND *) = dlsym(RTLD_NEXT, "mysql_stmt_bind_result");
    answer failed = bind_result(stmt, binds);
    unsigned int columns = mysql_stmt_field_count(stmt);
    for (unsigned int column = 0; !failed && column < columns; column++) {
        switch (binds[column].buffer_type) {
        case MYSQL_TYPE_STRING:
        case MYSQL_TYPE_VAR_STRING:
        case MYSQL_TYPE_TINY_BLOB:
        case MYSQL_TYPE_BLOB:
        case MYSQL_TYPE_MEDIUM_BLOB:
        case MYSQL_TYPE_LONG_BLOB:
            if (binds[column].length) *binds[column].length = 0;
            break;
        default:
            break;
        }
    }
    return failed;
}
