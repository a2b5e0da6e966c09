// A right verifier for exact/oracle.py. With any flag it is wrong: it does not subtract the draft.
//
//	go build verifier.go && python oracle.py --command ./verifier
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
)

func main() {
	isWrong := len(os.Args) > 1
	words := bufio.NewScanner(os.Stdin)
	words.Split(bufio.ScanWords)
	read := func(n int) []float64 {
		numbers := make([]float64, n)
		for i := range numbers {
			words.Scan()
			numbers[i], _ = strconv.ParseFloat(words.Text(), 64)
		}
		return numbers
	}
	for words.Scan() {
		K, _ := strconv.Atoi(words.Text())
		V := int(read(1)[0])
		guesses := append(read(K), -1) // no guess at position K; a missing guess is -1 too
		pDraft := read(K * V)          // row t begins at t * V
		pTarget := read((K + 1) * V)
		uniforms := read(K + 1)

		n := 0 // accepted guesses
		for guesses[n] >= 0 &&
			uniforms[n]*pDraft[n*V+int(guesses[n])] < pTarget[n*V+int(guesses[n])] {
			n++
		}

		weights := make([]float64, V) // of the residual: the part of p_target above p_draft
		sum := 0.0
		for v := range weights {
			weights[v] = pTarget[n*V+v]
			if guesses[n] >= 0 && !isWrong {
				weights[v] = math.Max(0, pTarget[n*V+v]-pDraft[n*V+v])
			}
			sum += weights[v]
		}
		token, before := 0, 0.0 // before: the weight of all tokens before v
		for v, weight := range weights {
			if weight > 0 && before <= uniforms[K]*sum {
				token = v
			}
			before += weight
		}

		for t := 0; t <= K; t++ {
			written := -1
			if t < n {
				written = int(guesses[t])
			} else if t == n {
				written = token
			}
			fmt.Print(written, " ")
		}
		fmt.Println() // os.Stdout has no buffer
	}
}
