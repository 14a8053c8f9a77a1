%% numeric: exact decimals, as the text that PostgreSQL shows, `<<"-12.340">>', which is what epgsql
%% 4.8 gives. `{epgsql_codec_numeric, decimal}' reads `{Coefficient, Scale}' instead, of which
%% the value is Coefficient / 10^Scale; `nan', `plus_infinity', `minus_infinity' have no digits.
%%
%% Written are integers, floats (by their shortest text), texts and `{Coefficient, Scale}'. The
%% format, of `numeric.c': count of base-10,000 digits, weight of the first, sign, scale, digits.
-module(epgsql_codec_numeric).
-behaviour(epgsql_codec).

-export([init/2, names/0, encode/3, decode/3]).

-export_type([data/0]).

-type decimal() :: {Coefficient :: integer(), Scale :: non_neg_integer()}.
-type data() :: binary() | string() | number() | decimal() | nan | plus_infinity | minus_infinity.

-define(BASE, 10000).
-define(POSITIVE, 16#0000).
-define(NEGATIVE, 16#4000).
-define(NAN, 16#c000).
-define(PLUS_INFINITY, 16#d000).
-define(MINUS_INFINITY, 16#f000).
%% PostgreSQL's own bounds: digits behind the point, and before it.
-define(SCALE_MAX, 16383).
-define(WEIGHT_MAX, 32768).

-spec init(decimal | any(), epgsql_sock:pg_sock()) -> decimal | text.
init(decimal, _) -> decimal;
init(_, _) -> text.

-spec names() -> [numeric].
names() -> [numeric].

-spec encode(data(), numeric, any()) -> binary().
encode(nan, numeric, _) -> <<0:16, 0:16, ?NAN:16, 0:16>>;
encode(plus_infinity, numeric, _) -> <<0:16, 0:16, ?PLUS_INFINITY:16, 0:16>>;
encode(minus_infinity, numeric, _) -> <<0:16, 0:16, ?MINUS_INFINITY:16, 0:16>>;
encode(Value, numeric, _) when is_integer(Value) -> write(Value, 0);
encode(Value, numeric, _) when is_float(Value) -> parse(float_to_binary(Value, [short]), Value);
encode({Coefficient, Scale}, numeric, _) when is_integer(Coefficient), Scale >= 0,
                                              Scale =< ?SCALE_MAX ->
    write(Coefficient, Scale);
encode(Text, numeric, State) when is_binary(Text); is_list(Text) ->
    case iolist_to_binary(Text) of
        <<"NaN">> -> encode(nan, numeric, State);
        <<"Infinity">> -> encode(plus_infinity, numeric, State);
        <<"-Infinity">> -> encode(minus_infinity, numeric, State);
        Digits -> parse(Digits, Text)
    end.

%% The digits behind the point, filled up to fours, are part of one large integer.
write(Coefficient, Scale) ->
    Fill = (4 - Scale rem 4) rem 4,
    Digits = digits(abs(Coefficient) * power(Fill), []),
    Weight = length(Digits) - 1 - (Scale + Fill) div 4,
    Sign = if Coefficient < 0 -> ?NEGATIVE; true -> ?POSITIVE end,
    <<(length(Digits)):16, Weight:16, Sign:16, Scale:16, << <<D:16>> || D <- Digits >>/binary>>.

digits(0, Acc) -> Acc;
digits(N, Acc) -> digits(N div ?BASE, [N rem ?BASE | Acc]).

power(N) -> power(N, 1).

power(0, Acc) -> Acc;
power(N, Acc) -> power(N - 1, Acc * 10).

parse(Text, Value) ->
    Pattern = "^([+-]?)([0-9]*)(?:\\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,5}))?$",
    case re:run(Text, Pattern, [{capture, all_but_first, binary}]) of
        {match, [Sign, Whole | More]} ->
            {Fraction, Exponent} = case More of
                                       [] -> {<<>>, 0};
                                       [Some] -> {Some, 0};
                                       [Some, Power] -> {Some, binary_to_integer(Power)}
                                   end,
            scaled(Sign, <<Whole/binary, Fraction/binary>>, byte_size(Fraction) - Exponent, Value);
        nomatch -> error({not_numeric, Value})
    end.

scaled(_, <<>>, _, Value) -> error({not_numeric, Value});
scaled(_, _, Scale, Value) when Scale > ?SCALE_MAX; Scale < -?WEIGHT_MAX * 4 ->
    error({numeric_overflow, Value});
scaled(Sign, Digits, Scale, _) ->
    Magnitude = binary_to_integer(Digits),
    Coefficient = case Sign of
                      <<"-">> -> -Magnitude;
                      _ -> Magnitude
                  end,
    case Scale < 0 of
        true -> write(Coefficient * power(-Scale), 0);
        false -> write(Coefficient, Scale)
    end.

-spec decode(binary(), numeric, decimal | text | []) ->
          binary() | decimal() | nan | plus_infinity | minus_infinity.
decode(<<_:32, ?NAN:16, _:16>>, numeric, Style) -> special(nan, <<"NaN">>, Style);
decode(<<_:32, ?PLUS_INFINITY:16, _:16>>, numeric, Style) ->
    special(plus_infinity, <<"Infinity">>, Style);
decode(<<_:32, ?MINUS_INFINITY:16, _:16>>, numeric, Style) ->
    special(minus_infinity, <<"-Infinity">>, Style);
decode(<<Count:16, Weight:16/signed, Sign:16, Scale:16, Digits/binary>>, numeric, Style)
  when byte_size(Digits) =:= Count * 2, (Sign =:= ?POSITIVE orelse Sign =:= ?NEGATIVE),
       Scale =< ?SCALE_MAX ->
    %% The integer of all digits is the value * 10000^(Count - 1 - Weight); shifted to 10^Scale.
    All = lists:foldl(fun(Digit, Acc) when Digit < ?BASE -> Acc * ?BASE + Digit end, 0,
                      [Digit || <<Digit:16>> <= Digits]),
    Shift = Scale - (Count - 1 - Weight) * 4,
    Magnitude = if
                    All =:= 0 -> 0;
                    Shift >= 0 -> All * power(Shift);
                    true -> All div power(-Shift)
                end,
    Coefficient = if Sign =:= ?NEGATIVE -> -Magnitude; true -> Magnitude end,
    case Style of
        decimal -> {Coefficient, Scale};
        _ -> text(Coefficient, Scale)
    end.

special(Atom, _, decimal) -> Atom;
special(_, Text, _) -> Text.

text(Coefficient, 0) -> integer_to_binary(Coefficient);
text(Coefficient, Scale) when Coefficient < 0 ->
    <<"-", (text(-Coefficient, Scale))/binary>>;
text(Coefficient, Scale) ->
    Digits = integer_to_binary(Coefficient),
    Padded = case Scale + 1 - byte_size(Digits) of
                 Missing when Missing > 0 ->
                     <<(binary:copy(<<"0">>, Missing))/binary, Digits/binary>>;
                 _ -> Digits
             end,
    Point = byte_size(Padded) - Scale,
    <<Whole:Point/binary, Fraction/binary>> = Padded,
    <<Whole/binary, ".", Fraction/binary>>.
