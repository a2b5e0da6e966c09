/* A right verifier for exact/oracle.py. With any flag it is wrong: it does not subtract the draft.

   gcc -O2 -o verifier verifier.c && python oracle.py --command ./verifier */
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16 }; /* rows, and tokens of the vocabulary */

/* Return the next number; end the program where its input ends. */
static double number(void) {
    double x;
    if (scanf("%lf", &x) != 1) exit(0);
    return x;
}

int main(int n_words, char **words) {
    (void)words;
    int is_wrong = n_words > 1;
    int guess[MOST];
    double p_draft[MOST][MOST], p_target[MOST][MOST], uniform[MOST];

    for (;;) {
        int K = number(), V = number();
        if (K >= MOST || V > MOST) return 1;
        for (int t = 0; t < K; t++) guess[t] = number();
        guess[K] = -1; /* no guess at position K; a missing guess is -1 too */
        for (int i = 0; i < K * V; i++) p_draft[i / V][i % V] = number();
        for (int i = 0; i < (K + 1) * V; i++) p_target[i / V][i % V] = number();
        for (int t = 0; t <= K; t++) uniform[t] = number();

        int n = 0; /* accepted guesses */
        while (guess[n] >= 0 &&
               uniform[n] * p_draft[n][guess[n]] < p_target[n][guess[n]]) n++;

        double weight[MOST], sum = 0; /* of the residual: the part of p_target above p_draft */
        for (int v = 0; v < V; v++) {
            double q = guess[n] >= 0 && !is_wrong ? p_draft[n][v] : 0;
            weight[v] = p_target[n][v] > q ? p_target[n][v] - q : 0;
            sum += weight[v];
        }
        int token = 0;
        double before = 0; /* the weight of all tokens before v */
        for (int v = 0; v < V; before += weight[v++])
            if (weight[v] > 0 && before <= uniform[K] * sum) token = v;

        for (int t = 0; t <= K; t++) printf("%d ", t < n ? guess[t] : t == n ? token : -1);
        printf("\n");
        fflush(stdout); /* an answer in a buffer is no answer */
    }
}
