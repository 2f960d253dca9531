/* The vector table: where the stack begins, and newlib's start, which calls main. */
extern void _start(void);
extern char stack_top;

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {&stack_top, (void *)_start};
