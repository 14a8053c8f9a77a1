%% A change on its way from who asks for it (`halley_follows_request') to the owner of the follows.

-record(change, {from :: gen_server:from() | caller,
                 operation :: halley_pages:operation(),
                 pairs :: pos_integer(),
                 %% Most pairs of one user.
                 most :: pos_integer(),
                 %% Whether `follows_per_user_max' is for it.
                 is_bounded :: boolean(),
                 refused = [] :: [halley_pages:key()],
                 following :: halley_pages:packed(),
                 followers :: halley_pages:packed(),
                 %% That no follow referred to when it was asked for.
                 numbers :: [halley_ids:user_number()],
                 %% From before its numbers were looked up (halley_follows_owner:epoch/0).
                 epoch :: integer()}).
