//! Messages in all languages of MySQL 9, MariaDB 10.11 and 11.8; `%s` stands for any text.

/// Group Replication's, in all languages.
pub(super) const CERTIFICATION_FAILED: &str =
    "Plugin instructed the server to rollback the current transaction.";

/// Galera's, in all languages.
pub(super) const NOT_READY: &str = "WSREP has not yet prepared node for application use";

/// MySQL's NOWAIT, in all languages.
pub(super) const NOT_TO_WAIT: &str =
    "Statement aborted because lock(s) could not be acquired immediately and NOWAIT is set.";

/// The text is the table's name. MariaDB's messages are longer than MySQL's.
pub(super) const RECORD_HAS_CHANGED: &[&str] = &[
    "A(z) '%s' tablaban talalhato rekord megvaltozott az utolso olvasas ota",
    "Cimpul a fost schimbat de la ultima citire a tabelei '%s'",
    "Datensatz hat sich seit dem letzten Zugriff auf Tabelle '%s' geändert",
    "Datensatz hat sich seit dem letzten Zugriff auf Tabelle '%s' geändert. Versuchen Sie, die Transaktion neu zu starten",
    "El registro ha cambiado desde la ultima lectura de la tabla '%s'",
    "El registro ha cambiado desde la ultima lectura de la tabla '%s'; intente volver a comenzar la transacción",
    "Enregistrement modifié depuis sa dernière lecture dans la table '%s'",
    "Enregistrement modifié depuis sa dernière lecture dans la table '%s' : essayez de redémarrer la transaction",
    "Il record e` cambiato dall'ultima lettura della tabella '%s'",
    "Il record e` cambiato dall'ultima lettura della tabella '%s'; Provare a far ripartire la transazione",
    "Kirje tabelis '%s' on muutunud viimasest lugemisest saadik",
    "Kirje tabelis '%s' on muutunud viimasest lugemisest saadik; alusta transaktsiooni otsast",
    "Posten er ændret siden sidste læsning '%s'",
    "Posten er ændret siden sidste læsning '%s'; Prøv at genstarte transaktionen",
    "Posten har blitt endret siden den ble lest '%s'",
    "Posten har förändrats sedan den lästes i register '%s'",
    "Posten har förändrats sedan den lästes i register '%s'. Försök att starta om transaktionen",
    "Posten har vorte endra sidan den sist vart lesen '%s'",
    "Posten har vorte endra sidan den sist vart lesen '%s'; Prøv å starte transaksjonen på nytt",
    "Record has changed since last read in table '%s'",
    "Record has changed since last read in table '%s'; try restarting transaction",
    "Record is veranderd sinds de laatste lees activiteit in de tabel '%s'",
    "Record is veranderd sinds de laatste lees activiteit in de tabel '%s'; Probeer herstart van de transactie",
    "Registro alterado desde a última leitura da tabela '%s'",
    "Registro alterado desde a última leitura da tabela '%s'. Tente reiniciar a transação",
    "Rekord został zmieniony od ostaniego odczytania z tabeli '%s'",
    "Slog je promenjen od zadnjeg čitanja tabele '%s'",
    "Slog je promenjen od zadnjeg čitanja tabele '%s'; Probajte da restartujete transakciju",
    "Záznam bol zmenený od posledného čítania v tabuľke '%s'",
    "Záznam byl změněn od posledního čtení v tabulce '%s'",
    "Η εγγραφή έχει αλλάξει από την τελευταία φορά που ανασύρθηκε από τον πίνακα '%s'",
    "Запис було змінено з часу останнього читання з таблиці '%s'",
    "Запис було змінено з часу останнього читання з таблиці '%s'; спробуйте перезапустити транзакцію.",
    "Запись изменилась с момента последней выборки в таблице '%s'",
    "Запись изменилась с момента последней выборки в таблице '%s'; Попробуйте перезапустить транзакцию",
    "रिकॉर्ड टेबल '%s' पिछली बार प\u{95d}े जाने के बाद से बदल गया है",
    "ცხრილში '%s' ჩანაწერი შეიცვალა ბოლო წაკითხვის შემდეგ. სცადეთ, ტრანზაქცია თავიდან გაუშვათ",
    "表 '%s' の最後の読み込み時点から、レコードが変化しました。",
    "表 '%s' の最後の読み込み時点から、レコードが変化しました。トランザクションを再試行してください。",
    "这个表自上次读后数据有变化'%s';尝试重新启动事务",
    "테이블 '%s'에서 마지막으로 읽은 후 Record가 변경되었습니다.",
    "Rekodi imebadilika tangu kusomeka mara ya mwisho kwenye jedwali '%s'; jaribu kuanzisha upya muamala",
];

/// The text is the number of the storage engine's error, and its message.
pub(super) const DURING_COMMIT: &[&str] = &[
    "Got error %s during COMMIT",
    "Chyba %s při COMMIT",
    "Erreur %s lors du COMMIT",
    "Fehler %s beim COMMIT",
    "Fick fel %s vid COMMIT",
    "Greška %s za vreme izvršavanja komande 'COMMIT'",
    "Kreeg fout %s tijdens COMMIT",
    "Modtog fejl %s mens kommandoen COMMIT blev udført",
    "Obtenido error %s durante COMMIT",
    "Obteve erro %s durante COMMIT",
    "Rilevato l'errore %s durante il COMMIT",
    "Viga %s käsu COMMIT täitmisel",
    "%s hiba a COMMIT vegrehajtasa soran",
    "Отримано помилку %s під час COMMIT",
    "Получена ошибка %s в процессе COMMIT",
    "შეცდომა %s COMMIT-ის დროს",
    "COMMIT के दौरान %s त्रुटि हुई",
    "COMMIT中にエラー %s が発生しました。",
    "COMMIT时发生错误 %s",
    "Nimepata hitilafu %s wakati wa COMMIT",
];

/// MySQL has it in English only.
pub(super) const TRANSACTION_IN_PROGRESS: &[&str] = &[
    "No se pueden cambiar las característias de transacción mientras que una transacción se ecuentre en proceso",
    "Sifa za muamala haziwezi kubadilishwa wakati shughuli inaendelea",
    "Transaction characteristics can't be changed while a transaction is in progress",
    "ტრანზაქციის მიმდინარეობისას მისი მახასიათებლების შეცვლა შეუძლებელია",
    "交易正在进行，无法更改事务特性",
];

pub(super) const STATEMENT_TIMEOUT: &[&str] = &[
    "Query execution was interrupted, maximum statement execution time exceeded",
    "Query execution was interrupted (max_statement_time exceeded)",
    "Can not lock user management caches for processing.",
    "Utekelezaji wa hoja ulikatizwa (muda_wa_max_statement umepitwa)",
    "查询执行中断（超出MAX_STATEMENT_TIME）",
    // MariaDB's message in Spanish: its file has no more than the first letter.
    "S",
];

pub(super) const LOCK_WAIT_TIMEOUT: &[&str] = &[
    "Lock wait timeout exceeded; try restarting transaction",
    "Beim Warten auf eine Sperre wurde die zulässige Wartezeit überschritten. Bitte versuchen Sie, die Transaktion neu zu starten",
    "E' scaduto il timeout per l'attesa del lock",
    "Fick inte ett lås i tid ; Försök att starta om transaktionen",
    "Kontrollaeg ületatud luku järel ootamisel; Proovi transaktsiooni otsast alata",
    "Lock wacht tijd overschreden",
    "Lock wait timeout overskredet",
    "Tempo de espera (timeout) de travamento excedido. Tente reiniciar a transação",
    "Tiempo de espera de bloqueo excedido; intente rearrancar la transacción",
    "Timeout sur l'obtention du verrou",
    "Vremenski limit za zaključavanje tabele je istekao; Probajte da ponovo startujete transakciju",
    "Затримку очікування блокування вичерпано",
    "Таймаут ожидания блокировки истек; попробуйте перезапустить транзакцию",
    "ბლოკის მოლოდინის ვადა ამოიწურა. სცადეთ, ტრანზაქცია თავიდან გაუშვათ",
    "ロック待ちがタイムアウトしました。トランザクションを再試行してください。",
    "锁等待超时;尝试重新启动事务",
    "Muda wa kusubiri kufuli umepita; jaribu kuanzisha upya shughuli",
    "Tempo de espera (timeout) de travamento excedido. Tente reiniciar a transação.",
    "Tiempo de bloqueo de espera excedido",
];

pub(super) const DEADLOCK: &[&str] = &[
    "Deadlock found when trying to get lock; try restarting transaction",
    "Beim Versuch, eine Sperre anzufordern, ist ein Deadlock aufgetreten. Versuchen Sie, die Transaktion neu zu starten",
    "Deadlock découvert en essayant d'obtenir les verrous : essayez de redémarrer la transaction",
    "Deadlock gevonden tijdens lock-aanvraag poging; Probeer herstart van de transactie",
    "Encontrado estancamiento (deadlock) al intentar obtener el bloqueo; intente volver a comenzar la transacción",
    "Encontrado um travamento fatal (deadlock) quando tentava obter uma trava. Tente reiniciar a transação",
    "Fick 'DEADLOCK' vid låsförsök av block/rad. Försök att starta om transaktionen",
    "Lukustamisel tekkis tupik (deadlock); alusta transaktsiooni otsast",
    "Trovato deadlock durante il lock; Provare a far ripartire la transazione",
    "Unakrsno zaključavanje pronađeno kada sam pokušao da dobijem pravo na zaključavanje; Probajte da restartujete transakciju",
    "Взаємне блокування знайдено під час спроби отримати блокування; спробуйте перезапустити транзакцію.",
    "Возникла тупиковая ситуация в процессе получения блокировки; Попробуйте перезапустить транзакцию",
    "ჩიხი ბლოკის მიღების მცდელობისას. სცადეთ, ტრანზაქცია თავიდან გაუშვათ",
    "ロック取得中にデッドロックが検出されました。トランザクションを再試行してください。",
    "试图锁定时发现僵局;尝试重新启动事务",
    "Encontrado deadlock cuando tentando obtener el bloqueo; Tente recomenzar la transición",
    "Encontrado um travamento fatal (deadlock) quando tentava obter uma trava. Tente reiniciar a transação.",
    "Kufungana ya makufuli kumepatikana wakati wa kujaribu kufunga; jaribu kuanzisha tena muamala",
    // Of named locks, on MySQL.
    "Hallado estancamiento (deadlock) al intentar obtener bloqueo a nivel de usuario; intente retroceder (roll back) bloqueos de transacción/entrega y rearranque la adquisición de bloqueo.",
    "Kufungana kwa kufuli kumepatikana wakati wa kujaribu kupata kufuli kwa kiwango cha mtumiaji; jaribu kurudisha nyuma muamala/kutoa kufuli na kuanzisha upya upataji wa kufuli.",
    "在尝试获得用户级锁时发现死锁;尝试回滚交易/释放锁定并重新启动锁定采集。",
    "Deadlock found when trying to get user-level lock; try rolling back transaction/releasing locks and restarting lock acquisition.",
];

/// A READ ONLY transaction; InnoDB in read-only mode.
pub(super) const READ_ONLY: &[&str] = &[
    "Cannot execute statement in a READ ONLY transaction",
    "Cannot execute statement in a READ ONLY transaction.",
    "Haiwezi kutekeleza taarifa katika muamala wa READ ONLY",
    "No puedo ejecutar sentencia en una transacción READ ONLY",
    "无法在只读事务中执行语句",
    "Running in read-only mode",
    "Ejecutando em modo sólo-lectura",
    "Kufanya kazi katika hali ya kusoma tu",
    "გაშვებულია მხოლოდ-წაკითხვის რეჟიმში",
    "以只读模式运行",
];

/// The text is the server's option that prevents the statement.
pub(super) const OPTION_PREVENTS_STATEMENT: &[&str] = &[
    "The MariaDB server is running with the %s option so it cannot execute this statement",
    "The MySQL server is running with the %s option so it cannot execute this statement",
    "Der MariaDB-Server läuft mit der Option %s und kann diese Anweisung deswegen nicht ausführen",
    "Der MySQL-Server läuft mit der Option %s und kann diese Anweisung deswegen nicht ausführen",
    "El servidor MariaDB se está ejecutando con la opción %s por lo que no se puede ejecutar esta sentencia",
    "El servidor MySQL está rodando con la opción %s tal que no puede ejecutar este comando",
    "MariaDB är startad med %s. Pga av detta kan du inte använda detta kommando",
    "MySQL är startad med %s. Pga av detta kan du inte använda detta kommando",
    "O servidor MariaDB está rodando com a opção %s razão pela qual não pode executar esse commando",
    "O servidor MySQL está rodando com a opção %s razão pela qual não pode executar esse commando",
    "Seva ya MariaDB inafanya kazi na chaguo la %s kwa hivyo haiwezi kutekeleza taarifa hii",
    "MariaDB სერვერი %s პარამეტრითაა გაშვებული და ამ გამოსახულების შესრულება არ შეუძლია",
    "MariaDBサーバーが %s オプションで実行されているので、このステートメントは実行できません。",
    "MySQLサーバーが %s オプションで実行されているので、このステートメントは実行できません。",
    "MariaDB服务器使用%s选项运行，因此无法执行此语句",
];
