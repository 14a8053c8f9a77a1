%% Query parameters: which ones each resource reads, and which requests are refused for theirs
%% (`protocol/http.md' 4.2 and 4.4).
%%
%% At the API listener only the operator's servers add parameters. So a parameter that the resource
%% doesn't read is a mistake, and its author would look for its effect in vain. At the public
%% listener proxies, analytics and breakers of caches add parameters of their own. There a parameter
%% is refused if it is almost a known one, as the edge does for streams (`parameters.rs').
%%
%% Pure.
-module(halley_api_parameters).

-export([check/4]).

%% They say who asks, at the public listener. The edge has read them.
-define(WHO, [<<"user">>, <<"token">>]).
%% A letter in place of another is another word where a name is shorter: `fast', `list'.
-define(REPLACED_BYTES_MIN, 5).

%% Of a request for a resource: its module and what its route fixes.
-spec check(halley_api:listener(), module(), Fixed :: [binary()], halley_api:request()) ->
    ok | {error, halley_api_error:error()}.
check(_, _, _, #{query := []}) ->
    ok;
check(Listener, Module, Fixed, #{path := Path, query := Query}) ->
    Read = read(Module, Fixed),
    Names = [Name || {Name, _} <- Query],
    case [Name || Name <- Read, length([N || N <- Names, N =:= Name]) > 1] of
        [Name | _] ->
            {error, {400, <<"duplicate_parameter">>, [Name, " is in the query more than once"]}};
        [] when hd(Path) =:= <<"v1">> ->
            unknown(Listener, Read, Names);
        [] ->
            ok
    end.

%% What a resource reads.
read(halley_api_past_h, _) -> [<<"limit">>, <<"before">>, <<"after">>];
read(halley_api_me_h, [<<"past">>]) -> [<<"limit">>, <<"before">>, <<"after">>];
%% With `subject' it is the request of one follow, which `halley_api_place' has made of it.
read(halley_api_me_h, [<<"follows">>]) -> [<<"limit">>, <<"after">>, <<"subject">>];
read(halley_api_subjects_h, _) -> [<<"limit">>, <<"after">>];
read(halley_api_presence_h, _) -> [<<"limit">>, <<"after">>];
read(halley_api_revocations_h, _) -> [<<"limit">>, <<"after">>];
read(halley_api_user_list_h, _) -> [<<"limit">>, <<"after">>];
read(halley_api_users_h, [<<"following">>]) -> [<<"limit">>, <<"after">>];
read(halley_api_top_h, [<<"ended">>]) -> [<<"limit">>, <<"reason">>];
read(halley_api_subscriptions_h, _) -> [<<"last">>];
read(halley_api_status_h, _) -> [<<"after">>];
read(halley_api_trace_h, _) -> [<<"user">>];
read(halley_api_demo_act_h, _) -> [<<"user">>];
read(_, _) -> [].

unknown(api, Read, Names) ->
    case [Name || Name <- Names, Name =/= <<>>, not lists:member(Name, Read)] of
        [] -> ok;
        [Name | _] -> refused(Name, [Known || Known <- Read, is_almost(Name, Known)], Read)
    end;
unknown(public, Read, Names) ->
    Known = Read ++ ?WHO,
    case [{Name, Meant} || Name <- Names, not lists:member(Name, Known),
                           Meant <- Known, is_almost(Name, Meant)] of
        [] -> ok;
        [{Name, Meant} | _] -> refused(Name, [Meant], Read)
    end.

refused(Name, Almost, Read) ->
    Message = ["no parameter here is named ", shown(Name),
               case {Almost, Read} of
                   {[Meant | _], _} -> ["; did you mean ", Meant, "?"];
                   {[], []} -> "; this resource has none";
                   {[], _} -> ["; there are ", lists:join(", ", Read)]
               end],
    {error, {400, <<"unknown_parameter">>, Message}}.

%% It may be anything, and longer than the sentence.
shown(Name) ->
    case re:run(Name, "^[A-Za-z0-9._-]{1,40}$", [{capture, none}, dollar_endonly]) of
        match -> Name;
        nomatch -> "like one of the query's"
    end.

%% Whether a person may have meant this one: in other case, with `-' or `_', or one slip away.
-spec is_almost(binary(), binary()) -> boolean().
is_almost(Name, Known) when byte_size(Name) > 2 * byte_size(Known) ->
    false;
is_almost(Name, Known) ->
    Plain = << <<(lower(Byte))>> || <<Byte>> <= Name, Byte =/= $-, Byte =/= $_ >>,
    Same = binary:longest_common_prefix([Plain, Known]),
    <<_:Same/binary, Left/binary>> = Plain,
    <<_:Same/binary, Right/binary>> = Known,
    is_one_slip(Left, Right, byte_size(Known) >= ?REPLACED_BYTES_MIN).

lower(Byte) when Byte >= $A, Byte =< $Z -> Byte + 32;
lower(Byte) -> Byte.

is_one_slip(<<>>, <<>>, _) -> true;
is_one_slip(<<A, B, Rest/binary>>, <<B, A, Rest/binary>>, _) -> true;
is_one_slip(<<_, Rest/binary>>, Rest, _) -> true;
is_one_slip(Left, <<_, Left/binary>>, IsLong) -> IsLong;
is_one_slip(<<_, Rest/binary>>, <<_, Rest/binary>>, IsLong) -> IsLong;
is_one_slip(_, _, _) -> false.
