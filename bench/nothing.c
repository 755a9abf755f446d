/* nothing: a program that does nothing, started to see what starting costs. */
int main(void)
{
	return 0;
}
