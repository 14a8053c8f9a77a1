%% A row of the table of links, read by the modules of links alone.

-define(LINKS, halley_links).

%% The slot, the slot whose queue and mark it uses (its own, or that of its trunk), and the process
%% that writes to the connection, with the bytes that wait for it (index 1).
-record(link, {
    slot :: halley_directory:slot(),
    way :: halley_directory:slot(),
    writer :: pid(),
    queue :: counters:counters_ref()
}).
