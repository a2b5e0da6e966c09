(* Traversal verification writes the target's text, proved so that a machine checks it.

Weng et al. (2025) Alg. 1, "Traversal Verification for Speculative Tree Decoding"; the code is
variants/traversal.py. Read lossless.v, block.v and tree.v first. docs/proof.md says how to run
all four.

    here      variants/traversal.py
    t         the number of tokens on the path; t = 0 is the root, which is never tested
    share     the probability of accepting the path; falls with each rejected child
    left      the target's row at a node, after what its rejected children took
    visit     `visit`: the tokens after this node, or None if no path through it passes

A path is tested from its leaf: that is block.v. What a rejected child leaves goes to the next
child: that is tree.v. So one equation of block.v, `block_step`, is all that is needed, with
what the next children write in place of the replacement. *)

From Coq Require Import Arith Field Lia List Lqa QArith Qcanon.
Require Import lossless block tree.
Import ListNotations.
Open Scope Qc_scope.
Open Scope list_scope.

Section Traversal.
Variable V : nat.
Variable siblings : text -> list token -> option row.
Variable target : model.

(* ---- 1. The algorithm; S / (S + 1 - share) is p_accept, as in block.v *)

Fixpoint visit (t : nat) (x : text) (share : Qc) (left : row) (guesses : tree) : D (option text) :=
  match guesses with
  | Guess token row below next =>
      ids <- visit (S t) (x ++ [token]) (next_share share left row token)
                   (target (x ++ [token])) below;
      match ids with
      | Some ids => ret (Some (token :: ids))
      | None => visit t x (p_accept V share left row) (residual V (times share left) row) next
      end
  | Nothing =>
      accepted <- accept_after t share;
      if accepted : bool then
        token <- sample V left;
        ret (Some [token])
      else ret None
  end.

Definition verify_traversal (x : text) (guesses : tree) : D text :=
  ids <- visit 0 x 1 (target x) guesses;
  ret (text_of ids).

Definition traversal_step (s : text -> shape) (x : text) (n_left : nat) : D text :=
  tree <- guess_shape V siblings x [] (cut (n_left - 1) (s x));
  verify_traversal x tree.

(* ---- 2. What is left after a rejected child: a share, and a row unless the share is 0 *)

Lemma residual_positive p d : positive V p -> positive V (residual V p d).
Proof.
  intros Hp v Hv. unfold residual. destruct (Qclt_le_dec 0 _); [|auto].
  apply positive_quotient; [unfold surplus; order|apply surplus_positive].
Qed.

Lemma next_weights s p d : 0 <= s <= 1 -> s * sum V p = s ->
  0 <= p_accept V s p d <= 1 /\
  p_accept V s p d * sum V (residual V (times s p) d) = p_accept V s p d.
Proof.
  intros [H0 H1] Hp. unfold p_accept. pose proof (surplus_positive V (times s p) d) as HS.
  destruct (Qclt_le_dec 0 (sum V (surplus (times s p) d))) as [HM|HM].
  - assert (sum V (residual V (times s p) d) = 1) as ->.
    { unfold residual. destruct (Qclt_le_dec 0 _) as [_|H]; [|now apply Qclt_not_le in HM].
      apply normalized; [|easy]. intros v _. unfold surplus. order. }
    set (mass := sum V (surplus _ d)) in *. clearbody mass. split; [|ring].
    assert (0 < mass + 1 - s) as H by order.
    destruct (Qclt_le_dec 0 (mass + 1 - s)) as [_|H']; [|now apply Qclt_not_le in H].
    assert (0 <= mass / (mass + 1 - s)) by (apply positive_quotient; order). split; order.
  - unfold residual. destruct (Qclt_le_dec 0 (sum V (surplus _ d))) as [H|_];
      [now apply Qclt_not_le in H|].
    assert (sum V (surplus (times s p) d) = 0) as -> by now apply Qcle_antisym.
    destruct (Qclt_le_dec 0 (0 + 1 - s)) as [H|H].
    + replace (0 / (0 + 1 - s)) with 0 by (unfold Qcdiv; ring). split; [easy|].
      replace (min 0 1) with 0 by easy. ring.
    + split; [easy|]. unfold times. now rewrite sum_times, Hp, Qcmult_1_l; order.
Qed.

(* ---- 3. One round, then the target *)

Hypothesis Hs : forall x drawn row, siblings x drawn = Some row -> distribution V row.
Hypothesis Hp : forall x, distribution V (target x).

Lemma always_visit guesses : forall t x s left,
  always (some_text t) (visit t x s left guesses).
Proof.
  induction guesses as [|g row below IHb next IHn]; intros t x s left; [apply always_accepted|].
  eapply always_bind; [apply IHb|]. intros [ids|] _; [now apply always_ret|apply IHn].
Qed.

(* The same claim as in block.v, for every row `left`: `block_step`, with IHn for the guesses next
   to the first one, and IHb for those below it. *)
Lemma visit_round sh : forall t n x drawn s left f c,
  0 <= s <= 1 -> (t = O -> s = 1) -> positive V left -> s * sum V left = s ->
  (levels sh <= n)%nat ->
  guess_shape V siblings x drawn sh (fun tree =>
    visit t x s left tree (then_plain V target x (S n) f c))
  = s * sample V left (go_on V target x n f) + (1 - s) * c.
Proof.
  induction sh as [|below IHb next IHn]; intros t n x drawn s left f c H01 Ht Hl Hsum Hn;
    cbn [guess_shape levels] in *; [|destruct (siblings x drawn) as [row|] eqn:E].
  1, 3: unfold ret at 1; cbn [visit]; unfold bind at 1; rewrite accepted_after by easy;
    f_equal; f_equal; apply (one_token V left target x n f).
  pose proof (Hs _ _ _ E) as Hrow. destruct (next_weights s left row H01 Hsum) as [H01' Hsum'].
  rewrite <- (block_step V left row s Hl Hsum Hrow H01 (go_on V target x n f) c).
  apply always_sample. intros g Hg.
  pose proof (next_share_between V left row s Hl Hrow H01 g Hg) as Hg01.
  rewrite <- (IHn t n x (drawn ++ [g]) (p_accept V s left row) (residual V (times s left) row));
    [|easy|intros Et; rewrite (Ht Et); apply p_accept_1
     |now apply residual_positive, times_positive|easy|lia].
  rewrite Qcplus_comm. etransitivity; [|apply average_guess_shape, Hs].
  apply (average_guess_shape V siblings Hs). intros nx _. rewrite Qcplus_comm.
  destruct n as [|n]; [lia|].
  change (go_on V target x (S n) f g)
    with (sample V (target (x ++ [g])) (go_on V target (x ++ [g]) n (fun rest => f (g :: rest)))).
  rewrite <- (IHb (S t) n (x ++ [g]) []); [|easy|easy|apply Hp|rewrite (proj2 (Hp _)); ring|lia].
  apply (average_guess_shape V siblings Hs). intros b _. cbn. unfold bind, ret.
  apply always_visit. intros [ids|] _; unfold then_plain; [now rewrite <- app_assoc|easy].
Qed.

Lemma traversal_step_is_exact s : exact_step V target (traversal_step s).
Proof.
  intros x [|n] Hn; [easy|]. split.
  - eapply always_bind; [apply (average_guess_shape V siblings Hs)|]. intros t _.
    eapply always_bind; [apply always_visit|]. intros [ids|] H; [now apply always_ret|easy].
  - intros f. unfold traversal_step. replace (S n - 1)%nat with n by lia.
    transitivity (1 * sample V (target x) (go_on V target x n f) + (1 - 1) * 0);
      [|rewrite Qcmult_1_l; apply Qcplus_0_r].
    rewrite <- (visit_round (cut n (s x)) 0 n x []);
      [|easy|easy|apply Hp|rewrite (proj2 (Hp _)); ring|apply levels_cut].
    apply (average_guess_shape V siblings Hs). intros tree _.
    unfold verify_traversal, bind, ret. apply always_visit. now intros [ids|] H.
Qed.
End Traversal.

Theorem traversal_is_lossless V siblings target s x N stop :
  (forall x drawn row, siblings x drawn = Some row -> distribution V row) ->
  (forall x, distribution V (target x)) ->
  generate x (traversal_step V siblings target s) N stop
  =D= autoregressive_sampling V x target N stop.
Proof. intros Hs Hp. now apply exact_step_is_lossless; [|apply traversal_step_is_exact]. Qed.
